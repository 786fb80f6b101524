import type { RefusalReason } from '../../plugins/refusal.ts'

type Reasons = readonly RefusalReason[]

/** The reasons of every route: faults of the request as HTTP. */
export const FRAMING: Reasons = ['bad_request', 'body_timeout', 'headers_too_large', 'expectation_failed']

/** The reasons of every route: a fault of the service, or of its database. */
export const UNEXPECTED: Reasons = ['internal', 'audit_unavailable']

/** The reason of a route whose pipeline checks the caller: a plugin that breaks has refused. */
export const ASKED: Reasons = ['plugin_failed']

/** The reasons of the client certificate, and of the page that spends it. */
export const CERTIFICATE: Reasons = [
  'origin_not_allowed',
  'certificate_required',
  'certificate_not_pinned',
  'certificate_not_valid_now',
  'principal_deactivated',
]

/** The reasons of a known caller: the certificate, the proof or the token, and the API key. */
export const KNOWN: Reasons = [
  ...CERTIFICATE,
  'proof_required',
  'proof_invalid',
  'use_dpop_nonce',
  'token_invalid',
  'overloaded',
]

export const BODY: Reasons = ['body_invalid', 'body_too_large']

/**
 * The reasons of gated work: the capability, the organisation's own checks (they may have other reasons too),
 * the record.
 */
export const GATED: Reasons = [
  'capability_missing',
  'policy_denied',
  'authority_revoked',
  'audit_unavailable',
]
