import { CertificateError } from '../certificate-error.ts'
import {
  type CertificateEnrollment,
  checkEnrollment,
  type EnrolledCertificate,
  enrolledCertificateOf,
} from './enrollment.ts'
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
