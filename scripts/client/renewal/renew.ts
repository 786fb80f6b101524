import { createPrivateKey, createPublicKey, type KeyObject, sign, X509Certificate } from 'node:crypto'
import { withIdentity } from '../gateway-request.ts'
import { type Identity, readIdentity } from '../identity/identity.ts'
import { gatewayRefusal, jsonMembers } from '../refusal.ts'
import { nextKey, putNext, putPair, settleNext } from './files.ts'

// ASN.1 tags (X.690 §8), and the elements that every request of ours has.
const SEQUENCE = 0x30
const SET = 0x31
const VERSION_1 = Buffer.from('020100', 'hex')
const COMMON_NAME = Buffer.from('0603550403', 'hex')
/** The algorithms by which a key of each kind signs: AlgorithmIdentifiers (RFC 5758 §3.2, 4055 §5, 8410 §3). */
const SIGNED_WITH: Readonly<Record<string, Buffer>> = {
  ec: Buffer.from('06082a8648ce3d040302', 'hex'),
  rsa: Buffer.from('06092a864886f70d01010b0500', 'hex'),
  ed25519: Buffer.from('06032b6570', 'hex'),
}
const NO_ATTRIBUTES = Buffer.from('a000', 'hex')

/**
 * Makes a PKCS#10 certificate request (RFC 2986) for an EC, RSA or Ed25519 key, in PEM. It asks for no name: the
 * gateway knows the holder, and takes the key alone. Throws one sentence for another key.
 */
export function certificateRequest(key: KeyObject): string {
  const algorithm = SIGNED_WITH[key.asymmetricKeyType ?? '']
  if (!algorithm) throw new Error('the key is not EC, RSA or Ed25519')
  const digest = key.asymmetricKeyType === 'ed25519' ? null : 'sha256'
  const subject = der(SEQUENCE, der(SET, der(SEQUENCE, COMMON_NAME, der(0x0c, Buffer.from('renewal')))))
  const publicKey = createPublicKey(key).export({ type: 'spki', format: 'der' })
  const wanted = der(SEQUENCE, VERSION_1, subject, publicKey, NO_ATTRIBUTES)
  const signature = der(0x03, Buffer.from([0]), sign(digest, wanted, key))
  const request = der(SEQUENCE, wanted, der(SEQUENCE, algorithm), signature)
  const lines = request.toString('base64').match(/.{1,64}/g) ?? []
  return ['-----BEGIN CERTIFICATE REQUEST-----', ...lines, '-----END CERTIFICATE REQUEST-----', ''].join('\n')
}

/** One element: its tag, its length, its content of less than 64 KiB. */
function der(tag: number, ...content: readonly Buffer[]): Buffer {
  const bytes = Buffer.concat(content)
  const { length } = bytes
  const short =
    length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff]
  return Buffer.concat([Buffer.from([tag, ...short]), bytes])
}

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
