import type { RefusalReason } from '../../plugins/refusal.ts'

type Reasons = readonly RefusalReason[]

/** The reasons of every route: faults of the request as HTTP. */
export const FRAMING_REASONS: Reasons = [
  'bad_request',
  'body_timeout',
  'headers_too_large',
  'expectation_failed',
]

/** The reasons of every route: a fault of the service, or of its database. */
export const FAULT_REASONS: Reasons = ['internal', 'audit_unavailable']

/** The reason of a route whose pipeline checks the caller: a plugin that breaks has refused. */
export const PIPELINE_REASONS: Reasons = ['plugin_failed']

/** The reasons of the client certificate, and of the page that spends it. */
export const CLIENT_CERTIFICATE_REASONS: Reasons = [
  'origin_not_allowed',
  'certificate_required',
  'certificate_not_pinned',
  'certificate_not_valid_now',
  'principal_deactivated',
]

/** The reasons of a known caller: the certificate, the proof or the token, and the API key. */
export const KNOWN_CALLER_REASONS: Reasons = [
  ...CLIENT_CERTIFICATE_REASONS,
  'proof_required',
  'proof_invalid',
  'use_dpop_nonce',
  'token_invalid',
  'overloaded',
]

export const BODY_REASONS: Reasons = ['body_invalid', 'body_too_large']

/**
 * The reasons of gated work: the capability, the organisation's own checks (they may have other reasons too),
 * the record.
 */
export const GATED_REASONS: Reasons = [
  'capability_missing',
  'policy_denied',
  'authority_revoked',
  'audit_unavailable',
]
