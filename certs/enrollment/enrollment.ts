import {
  createPrivateKey,
  type KeyObject,
  randomBytes,
  sign,
  verify,
  type X509Certificate,
} from 'node:crypto'
import { CertificateError } from '../certificate-error.ts'
import { type CertificationPath, readChain, verifyChain } from '../x509/chain.ts'
import type { ChainCertificate } from '../x509/chain-link.ts'
import { thumbprintOf } from '../x509/x509.ts'
import { readCsr } from './csr.ts'
import { parseSpiffeId, printSpiffeId, uriNamesOf } from './spiffe-id.ts'

export type ByocaEnrollment = CertificateEnrollment & {
  readonly organisation: string
  /** The name of the agent, as it is being enrolled. */
  readonly name: string
  /** The SPIFFE id of the certificate that it takes the place of. Absent: there is none. */
  readonly renewedId?: string | null
}

/**
 * Checks a client certificate that the organisation's own CA made, and returns it ready to be pinned
 * (specification §5.3, docs/protocol.md#enrollment, docs/threats.md#m-14). Throws a {@link CertificateError}.
 * A SPIFFE id that it carries must name this organisation and agent; its trust domain may be any, for the
 * organisation's CA has its own, and vouches for it by signing. Does NOT check whether the thumbprint is
 * pinned already.
 */
export async function checkByoca(enrollment: ByocaEnrollment): Promise<EnrolledCertificate> {
  const path = await checkEnrollment(enrollment)
  const spiffeId = ownSpiffeId(path[0].x509.raw, enrollment)
  const { renewedId = null } = enrollment
  if (renewedId === null || spiffeId === renewedId) return enrolledCertificateOf(path, spiffeId)
  const message = `The certificate does not name the SPIFFE id that the agent was enrolled with: ${renewedId}.`
  throw new CertificateError('spiffe_mismatch', message)
}

function ownSpiffeId(leafDer: Uint8Array, { organisation, name }: ByocaEnrollment): string | null {
  const uris = uriNamesOf(leafDer)
  const uri = uris.find((candidate) => candidate.toLowerCase().startsWith('spiffe:'))
  if (uri === undefined) return null
  // An SVID has one URI and no other (X.509-SVID §2), SPIFFE or not.
  if (uris.length > 1) {
    throw new CertificateError(
      'spiffe_ambiguous',
      'The certificate has a second URI in addition to its SPIFFE id.',
    )
  }
  if (isOf(uri, organisation, name)) return uri
  const message = `The SPIFFE id of the certificate does not name the agent ${organisation}/${name}.`
  throw new CertificateError('spiffe_mismatch', message)
}

// Printed and compared whole, so that nothing in the id besides organisation and name goes unread.
function isOf(uri: string, org: string, name: string): boolean {
  try {
    return uri === printSpiffeId({ trustDomain: parseSpiffeId(uri).trustDomain, org, name })
  } catch (error) {
    if (error instanceof Error) return false
    throw error
  }
}

/** The longest PEM text of a key: RSA 8192 in PKCS#8 takes 6.4 KiB. Characters. */
const PEM_LIMIT = 16_384

/**
 * Reads a private key from PEM: PKCS#8, PKCS#1 or SEC1. Throws an Error if there is none, if it is sealed
 * with a password, or if the text is longer than 16 KiB. Does NOT check that its numbers belong together:
 * {@link isKeyOf} does.
 */
export function readPrivateKey(pem: string): KeyObject {
  if (pem.length > PEM_LIMIT) throw new Error(`the private key is longer than ${PEM_LIMIT} characters`)
  return createPrivateKey(pem)
}

/**
 * Tells whether a private key is the certificate's: it signs, and the certificate's public key verifies. EC,
 * RSA and Ed25519 only. Comparing the public halves is not enough: OpenSSL believes the one that a key's file states
 * next to its secret.
 */
export function isKeyOf(certificate: X509Certificate, key: KeyObject): boolean {
  if (!certificate.checkPrivateKey(key)) return false
  const challenge = randomBytes(32)
  try {
    const digest = digestFor(certificate.publicKey)
    return verify(digest, challenge, certificate.publicKey, sign(digest, challenge, key))
  } catch (error) {
    // A key whose numbers do not fit together cannot sign at all.
    if (error instanceof Error) return false
    throw error
  }
}

/** Ed25519 has a digest of its own, and a key for RSASSA-PSS may name one. */
const digestFor = ({ asymmetricKeyType, asymmetricKeyDetails }: KeyObject): string | null =>
  asymmetricKeyType === 'ed25519' ? null : (asymmetricKeyDetails?.hashAlgorithm ?? 'sha256')

/** A certificate that may be pinned. */
export interface EnrolledCertificate {
  readonly leafPem: string
  /**
   * The leaf and the intermediates that it chains by, without the trusted CA; other certificates are left
   * out.
   */
  readonly chainPem: string
  /** Lower-case hex SHA-256 of the leaf's DER (RFC 8705 §3.1). */
  readonly thumbprint: string
  /** The leaf's own. ms since the epoch. */
  readonly notBefore: number
  readonly notAfter: number
  /** The SPIFFE id that it carries. */
  readonly spiffeId: string | null
}

/**
 * The proof that its sender holds the key of a certificate: that key (unencrypted PKCS#8, PKCS#1 or SEC1), or a
 * certificate request that it has signed, of which nothing else counts.
 */
export type KeyEvidence = { readonly privateKeyPem: string } | { readonly csrPem: string }

/** A certificate made elsewhere. */
export type CertificateEnrollment = KeyEvidence & {
  /** The leaf first; may be followed by intermediates. */
  readonly certPem: string
  /** The CA certificates that the operator trusts for this kind of enrollment, one or more in each text. */
  readonly caPems: readonly string[]
  /** ms since the epoch. */
  readonly at: number
}

/**
 * Checks the certificate and the key of every enrollment: both can be read, the certificates chain to a
 * trusted CA now, are strong and a client's, and the key signs for the certificate. Throws a
 * {@link CertificateError}. Does NOT look at the names in the certificate.
 */
export async function checkEnrollment(enrollment: CertificateEnrollment): Promise<CertificationPath> {
  const { certPem, caPems, at } = enrollment
  checkOneLeaf(readChain(certPem))
  const isOwner = await ownerOf(enrollment)
  if (caPems.length === 0) {
    throw new CertificateError('no_ca_attached', 'No CA is attached that could vouch for this certificate.')
  }
  const path = await verifyChain({ leafPem: certPem, intermediatesPem: '', rootsPem: caPems, at })
  // Last, for a signature by a key of any size and kind is a price that only a trusted certificate is worth.
  if (!isOwner(path[0].x509)) {
    throw new CertificateError('key_mismatch', 'The private key does not belong to the certificate.')
  }
  return path
}

async function ownerOf(evidence: KeyEvidence): Promise<(leaf: X509Certificate) => boolean> {
  if ('csrPem' in evidence) {
    const { publicKey } = await readCsr(evidence.csrPem)
    return (leaf) => publicKey.equals(leaf.publicKey)
  }
  const key = readKey(evidence.privateKeyPem)
  return (leaf) => isKeyOf(leaf, key)
}

/** Returns the path as it is stored and sent. */
export function enrolledCertificateOf(
  [leaf, ...issuers]: CertificationPath,
  spiffeId: string | null,
): EnrolledCertificate {
  const sent: readonly X509Certificate[] = [leaf, ...issuers.slice(0, -1)].map(({ x509 }) => x509)
  return {
    leafPem: leaf.x509.toString(),
    chainPem: sent.map((certificate) => certificate.toString()).join(''),
    thumbprint: thumbprintOf(leaf.x509.raw),
    notBefore: leaf.x509.validFromDate.getTime(),
    notAfter: leaf.x509.validToDate.getTime(),
    spiffeId,
  }
}

/** Refuses a second leaf: nothing would tell which of the two is meant. */
function checkOneLeaf([leaf, ...issuers]: readonly ChainCertificate[]): void {
  if (leaf && issuers.every(({ constraints }) => constraints?.cA === true)) return
  throw new CertificateError(
    'certificate_unreadable',
    'The text is not one PEM certificate, followed by nothing but the CA certificates that it chains by.',
  )
}

function readKey(pem: string): KeyObject {
  try {
    return readPrivateKey(pem)
  } catch (cause) {
    const message = 'The private key cannot be read: it is encrypted, or no PEM of a private key.'
    throw new CertificateError('private_key_unreadable', message, cause)
  }
}
