import type { KeyObject, X509Certificate } from 'node:crypto'
import { CertificateError } from '../certificate-error.ts'
import { type CertificationPath, readChain, verifyChain } from '../x509/chain.ts'
import type { ChainCertificate } from '../x509/chain-link.ts'
import { thumbprintOf } from '../x509/thumbprint.ts'
import { isKeyOf, readPrivateKey } from './private-key.ts'

/** A certificate that may be pinned. */
export interface EnrolledCertificate {
  readonly leafPem: string
  /**
   * The leaf and the intermediates that it chains by, without the CA that is trusted; whatever else was sent
   * is left out.
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

/** A certificate made elsewhere, with the key that goes with it. */
export interface CertificateEnrollment {
  /** The leaf first; may be followed by intermediates. */
  readonly certPem: string
  /** Unencrypted PKCS#8, PKCS#1 or SEC1. */
  readonly privateKeyPem: string
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
export async function checkEnrollment({
  certPem,
  privateKeyPem,
  caPems,
  at,
}: CertificateEnrollment): Promise<CertificationPath> {
  checkOneLeaf(readChain(certPem))
  const key = readKey(privateKeyPem)
  if (caPems.length === 0) {
    throw new CertificateError('no_ca_attached', 'No CA is attached that could vouch for this certificate.')
  }
  const path = await verifyChain({ leafPem: certPem, intermediatesPem: '', rootsPem: caPems, at })
  // Last, for a signature by a key of any size and kind is a price that only a trusted certificate is worth.
  if (!isKeyOf(path[0].x509, key)) {
    throw new CertificateError('key_mismatch', 'The private key does not belong to the certificate.')
  }
  return path
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
    const message = 'The private key is not an unencrypted private key in PEM.'
    throw new CertificateError('private_key_unreadable', message, cause)
  }
}
