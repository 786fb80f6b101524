import { createPrivateKey, X509Certificate } from 'node:crypto'
import { withIdentity } from '../gateway-request.ts'
import { type Identity, readIdentity } from '../identity/identity.ts'
import { gatewayRefusal, jsonMembers } from '../refusal.ts'
import { certificateRequest } from './certificate-request.ts'
import { nextKey, putNext, putPair, settleNext } from './files.ts'

const PATH = '/v1/auth/certificate'

/** The certificate that is in use now. */
export interface RenewedCertificate {
  /** ms since the epoch. */
  readonly notAfter: number
  /** Until when the certificate before it is honoured, RFC 3339; null: it is not. */
  readonly previousValidUntil: string | null
}

/** The life of a certificate. ms since the epoch. */
export interface CertificateLife {
  /** The beginning of its last third, from which the gateway renews it. */
  readonly renewableFrom: number
  readonly notAfter: number
}

export function certificateLife({ cert }: Pick<Identity, 'cert'>): CertificateLife {
  const { validFromDate, validToDate } = new X509Certificate(cert)
  const notAfter = validToDate.getTime()
  return { renewableFrom: notAfter - (notAfter - validFromDate.getTime()) / 3, notAfter }
}

/**
 * Renews the certificate of an identity directory, for a new key, by the certificate that it holds
 * (docs/protocol.md#renewal). The new pair takes the place of the old one when both are whole on the disk;
 * until then, and wherever this throws, the old identity stays as it is. Two that renew at once get the same
 * pair. Throws a `GatewayRefusal` if the gateway refuses.
 */
export async function renewIdentity(directory: string, url?: string): Promise<RenewedCertificate> {
  await settleNext(directory)
  const identity = readIdentity(directory, url)
  const csrPem = certificateRequest(await nextKey(directory))
  const { chain, renewed } = await askRenewal(identity, { csr_pem: csrPem })
  await putNext(directory, chain)
  return renewed
}

/** A certificate that its own CA has renewed, and its key. PEM. */
export interface OwnLeaf {
  readonly cert: string
  readonly key: string
}

/**
 * Has the gateway know an agent (byoca) by the certificate that its own CA has renewed, at the word of the one in
 * its directory, and puts the new pair there. The key stays on this machine. Otherwise as {@link renewIdentity}.
 */
export async function renewByOwnLeaf(
  directory: string,
  { cert, key }: OwnLeaf,
  url?: string,
): Promise<RenewedCertificate> {
  await settleNext(directory)
  const identity = readIdentity(directory, url)
  const csrPem = certificateRequest(createPrivateKey(key))
  const { renewed } = await askRenewal(identity, { csr_pem: csrPem, cert_pem: cert })
  await putPair(directory, key, cert)
  return renewed
}

async function askRenewal(identity: Identity, body: Readonly<Record<string, string>>) {
  const { status, text, headers } = await withIdentity(identity, (ask) => ask(PATH, { method: 'POST', body }))
  if (status !== 200) throw gatewayRefusal(status, text, headers['x-should-retry'])
  const { cert_chain_pem: given, previous_valid_until: until } = jsonMembers(text)
  const chain = String(given)
  const previousValidUntil = typeof until === 'string' ? until : null
  return { chain, renewed: { notAfter: certificateLife({ cert: chain }).notAfter, previousValidUntil } }
}
