/**
 * The reasons for which a certificate, its key or a request for one is not accepted: one word for each check,
 * whichever endpoint asks (docs/protocol.md#principals). Callers switch on them, so a word is never changed
 * and never means two things.
 */
export const CERTIFICATE_REASONS = [
  // The text cannot be read.
  'certificate_unreadable',
  'private_key_unreadable',
  // About every certificate, and a request for one.
  'certificate_expired',
  'certificate_not_yet_valid',
  'key_too_weak',
  'signature_too_weak',
  'unknown_critical_extension',
  'client_auth_missing',
  // About a client's leaf, its chain and its key.
  'digital_signature_missing',
  'is_a_ca',
  'chain_invalid',
  'no_ca_attached',
  'key_mismatch',
  // About a CA that is to be trusted.
  'not_a_ca',
  // About a request.
  'signature_invalid',
  'foreign_san',
  'ca_requested',
  // About its name.
  'spiffe_missing',
  'spiffe_malformed',
  'spiffe_ambiguous',
  'spiffe_mismatch',
] as const

export type CertificateReason = (typeof CERTIFICATE_REASONS)[number]

/** A certificate or request that is not accepted. The message is one plain sentence that a caller may see. */
export class CertificateError extends Error {
  override readonly name = 'CertificateError'
  readonly reason: CertificateReason

  constructor(reason: CertificateReason, message: string, cause?: unknown) {
    super(message, { cause })
    this.reason = reason
  }
}
