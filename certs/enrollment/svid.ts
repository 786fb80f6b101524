import { X509Certificate } from 'node:crypto'
import { CertificateError } from '../certificate-error.ts'
import { anchorsOf, type CertificationPath, verifyChain } from '../x509/chain.ts'
import { pemCertificatesOf, thumbprintOf } from '../x509/x509.ts'
import { checkEnrollment, type EnrolledCertificate, enrolledCertificateOf } from './enrollment.ts'
import { isWorkloadId, uriNamesOf } from './spiffe-id.ts'

export interface SvidEnrollment {
  /** The leaf first; may be followed by intermediates. */
  readonly svidPem: string
  readonly svidKeyPem: string
  /** The CA certificates of the SVID's trust domain, one or more in each text. */
  readonly bundlePems: readonly string[]
  /** ms since the epoch. */
  readonly at: number
}

export interface EnrolledSvid extends EnrolledCertificate {
  readonly spiffeId: string
  /**
   * The CAs of the bundle that it chains to. Lower-case hex SHA-256 of the DER of each, sorted, each once.
   */
  readonly anchors: readonly string[]
}

export interface PresentedSvid {
  /** The leaf as TLS delivered it. Nothing of it is believed. */
  readonly leafDer: Uint8Array
  /** The SPIFFE id that is enrolled. */
  readonly spiffeId: string
  /** The CAs that it must chain to. */
  readonly bundlePems: readonly string[]
  /** Further CA certificates that it may chain by: only those that a CA of the bundle has issued count. */
  readonly intermediatesPem?: string
  /** ms since the epoch. */
  readonly at: number
}

/**
 * Checks an X.509-SVID, and returns it ready to be pinned by its SPIFFE id (specification §5.3,
 * X.509-SVID §5). Any trust domain and path is accepted, in its one spelling; keyUsage must be there
 * (X.509-SVID §4.3). Throws a {@link CertificateError}. Does NOT know which bundle belongs to which trust
 * domain: every CA in the bundle may name any.
 */
export async function checkSvid(enrollment: SvidEnrollment): Promise<EnrolledSvid> {
  const { svidPem, svidKeyPem, bundlePems, at } = enrollment
  const path = await checkEnrollment({
    certPem: svidPem,
    privateKeyPem: svidKeyPem,
    caPems: bundlePems,
    at,
  })
  const spiffeId = spiffeIdOf(path)
  const anchors = await anchorsOf({ leafPem: svidPem, intermediatesPem: '', rootsPem: bundlePems, at })
  const digests = new Set(anchors.map(({ x509 }) => thumbprintOf(x509.raw)))
  return { ...enrolledCertificateOf(path, spiffeId), spiffeId, anchors: [...digests].toSorted() }
}

/**
 * Returns the digest of the CA that a certificate chains to if it is, now, an SVID of that SPIFFE id under
 * that bundle, so that a pin can follow a rotated SVID (docs/protocol.md#spiffe). Null for anything else, hostile bytes and an empty bundle among
 * them; never throws. The bundle must hold the leaf's issuers, as far as the peer did not send them. Takes a
 * few milliseconds: remember the answer by thumbprint, and no longer than the bundle stands. TLS has proven
 * possession of the key: this does NOT.
 */
export async function svidAnchor(presented: PresentedSvid): Promise<string | null> {
  const { leafDer, spiffeId, bundlePems, intermediatesPem = '', at } = presented
  try {
    const leaf = new X509Certificate(leafDer)
    const bundle = bundlePems.flatMap(pemCertificatesOf)
    const between = pemCertificatesOf(intermediatesPem).filter((ca) => isSignedByOne(leaf, [ca]))
    // First: anybody may send a certificate of their own making, and to read all of one may take half a
    // second.
    if (between.length === 0 && !isSignedByOne(leaf, bundle)) return null
    // It reads DER only, where X509Certificate would take PEM as well.
    if (uriNamesOf(leafDer)[0] !== spiffeId) return null
    const leafPem = leaf.toString()
    // Not certificates that somebody else has issued for the same key: a chain with too many is refused.
    const issued = between.filter((ca) => isSignedByOne(ca, bundle)).map((ca) => ca.toString())
    const path = await verifyChain({ leafPem, intermediatesPem: issued.join(''), rootsPem: bundlePems, at })
    const anchor = path.at(-1) ?? path[0]
    return spiffeIdOf(path) === spiffeId ? thumbprintOf(anchor.x509.raw) : null
  } catch (error) {
    if (error instanceof Error) return null
    throw error
  }
}

const isSignedByOne = (leaf: X509Certificate, issuers: readonly X509Certificate[]): boolean =>
  issuers.some((issuer) => leaf.checkIssued(issuer) && leaf.verify(issuer.publicKey))

/**
 * Validates a leaf as X.509-SVID §5.2 demands beyond RFC 5280, and returns its SPIFFE id. The chain has
 * refused CAs and their usages already.
 */
function spiffeIdOf([leaf]: CertificationPath): string {
  if (leaf.usage === null) {
    throw new CertificateError(
      'digital_signature_missing',
      'An SVID states its keyUsage, and this certificate does not.',
    )
  }
  const [uri, ...rest] = uriNamesOf(leaf.x509.raw)
  if (uri === undefined) {
    throw new CertificateError('spiffe_missing', 'The certificate carries no SPIFFE id: it has no URI SAN.')
  }
  if (rest.length > 0) {
    throw new CertificateError(
      'spiffe_ambiguous',
      'An SVID has exactly one URI SAN, and this certificate has more.',
    )
  }
  if (isWorkloadId(uri)) return uri
  throw new CertificateError(
    'spiffe_malformed',
    'The URI SAN is not a SPIFFE id with a trust domain and a path.',
  )
}
