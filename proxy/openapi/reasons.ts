import type { RefusalReason } from '../../plugins/refusal.ts'

type Reasons = readonly RefusalReason[]

/** Of every route: what is wrong with the request as HTTP. */
export const FRAMING: Reasons = ['bad_request', 'body_timeout', 'headers_too_large', 'expectation_failed']

/** Of every route: a fault of the service. */
export const UNEXPECTED: Reasons = ['internal']

/** Of a route where something is asked of the caller: a question that breaks has refused. */
export const ASKED: Reasons = ['plugin_failed']

/** Of the client certificate: who is it. */
export const CERTIFICATE: Reasons = [
  'certificate_required',
  'certificate_not_pinned',
  'certificate_not_valid_now',
  'principal_deactivated',
]

/** Of a caller who is known: the certificate, the proof or the token, and the API key. */
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
 * Of gated work: the capability, the organisation's own checks (they may have other reasons too), the record.
 */
export const GATED: Reasons = ['capability_missing', 'policy_denied', 'audit_unavailable']
