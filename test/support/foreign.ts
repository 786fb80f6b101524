import { GeneralName } from 'pkijs'
import { createAuthority, loadAuthority } from '../../certs/authority/authority.ts'
import { alternativeNames, digitalSignatureKeyUsage, leafConstraints } from '../../certs/authority/builder.ts'
import { issueClientCertificate } from '../../certs/authority/issue.ts'
import { caExtensions, DAY_MS, type OddCertificate, odd } from './certs/made.ts'

/** A certificate and key that somebody else's CA made, and that CA. PEM. */
export interface Foreign {
  readonly caPem: string
  readonly certPem: string
  readonly keyPem: string
}

/** An organisation's own CA. Each call of `leaf` makes a client certificate for `spiffe://corp.test/acme/<name>`. */
export async function corporateCa(made = Date.now()) {
  const files = await createAuthority({ organisation: 'acme', at: made })
  const authority = await loadAuthority(files)
  const leaf = async (name: string, at = made, days = 30): Promise<Foreign> => {
    const subject = { commonName: `acme::${name}`, spiffeId: `spiffe://corp.test/acme/${name}` }
    const issued = await issueClientCertificate(authority, subject, { at, days })
    return { caPem: files.rootPem, certPem: issued.chainPem, keyPem: issued.privateKeyPem }
  }
  return { caPem: files.rootPem, leaf }
}

/** A client certificate of a new one. */
export const byCorporateCa = async (name: string, at?: number): Promise<Foreign> =>
  (await corporateCa(at)).leaf(name)

/** A SPIFFE trust domain that hands out SVIDs: each call is a rotation. */
export async function trustDomain(
  at = Date.now(),
): Promise<{ caPem: string; svid: (id: string) => Promise<Foreign> }> {
  const dates = { notBefore: at - DAY_MS, notAfter: at + DAY_MS }
  const root = await odd({ name: 'spire', extensions: caExtensions(0), ...dates })
  const svid = async (id: string): Promise<Foreign> => {
    const names = alternativeNames([new GeneralName({ type: 6, value: id })])
    const leaf = await odd(
      { name: 'svid', extensions: [leafConstraints(), digitalSignatureKeyUsage(), names], ...dates },
      root,
    )
    return { caPem: root.pem, certPem: leaf.pem, keyPem: keyPem(leaf) }
  }
  return { caPem: root.pem, svid }
}

const keyPem = ({ key }: OddCertificate): string => key.export({ type: 'pkcs8', format: 'pem' }).toString()
