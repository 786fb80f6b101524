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

/** A client certificate of an organisation's own CA, for `spiffe://corp.test/acme/<name>`. */
export async function byCorporateCa(name: string, at = Date.now()): Promise<Foreign> {
  const made = await createAuthority({ organisation: 'acme', at })
  const subject = { commonName: `acme::${name}`, spiffeId: `spiffe://corp.test/acme/${name}` }
  const issued = await issueClientCertificate(await loadAuthority(made), subject, { at, days: 30 })
  return { caPem: made.rootPem, certPem: issued.chainPem, keyPem: issued.privateKeyPem }
}

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
