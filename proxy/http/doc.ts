import type { z } from 'zod'
import type { Refusal, RefusalReason } from '../../plugins/refusal.ts'
import type { Reply } from './reply.ts'

export interface BodyDoc {
  /** Default: JSON. */
  readonly media?: string
  readonly schema: z.ZodType
  readonly example?: unknown
}

export interface AnswerDoc {
  readonly description: string
  /** One for each media type. Absent: an empty body. */
  readonly content?: readonly BodyDoc[]
  /** The headers that come with this answer and not with every one, by name, with their descriptions. */
  readonly headers?: Readonly<Record<string, string>>
}

export interface RouteDoc {
  /** camelCase. Routes that share one doc are aliases of the first of them. */
  readonly name: string
  readonly summary: string
  /** `principal`: the holders of pinned certificates; `monitor`: operators, and the token for metrics. */
  readonly caller: 'anyone' | 'principal' | 'operator' | 'monitor'
  readonly demands?: string
  /** An object of the query's members. */
  readonly query?: z.ZodType
  /** The request headers that matter to this route, by name, with their effects. */
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: BodyDoc
  readonly answers: Readonly<Record<number, AnswerDoc>>
  readonly reasons: readonly RefusalReason[]
  /** Renders a refusal as this route does. Default: `refusalReply`. */
  readonly refuse?: (refusal: Refusal) => Reply
}

export const EXAMPLE_ID = 'req_0123456789abcdef0123456789abcdef'

type Reasons = readonly RefusalReason[]

export const FRAMING_REASONS: Reasons = [
  'bad_request',
  'body_timeout',
  'headers_too_large',
  'expectation_failed',
]

/** The reasons of every route: a fault of the service, or of its database. */
export const FAULT_REASONS: Reasons = ['internal', 'audit_unavailable']

export const PIPELINE_REASONS: Reasons = ['plugin_failed']

export const CLIENT_CERTIFICATE_REASONS: Reasons = [
  'origin_not_allowed',
  'certificate_required',
  'certificate_not_pinned',
  'certificate_not_valid_now',
  'principal_deactivated',
]

export const KNOWN_CALLER_REASONS: Reasons = [
  ...CLIENT_CERTIFICATE_REASONS,
  'proof_required',
  'proof_invalid',
  'use_dpop_nonce',
  'token_invalid',
  'overloaded',
]

export const BODY_REASONS: Reasons = ['body_invalid', 'body_encoded', 'body_too_large']

/** The reasons of gated work; the organisation's own checks may have others. */
export const GATED_REASONS: Reasons = [
  'capability_missing',
  'policy_denied',
  'content_refused',
  'stopped',
  'limit_reached',
  'limit_unbounded',
  'limit_unpriced',
  'limits_too_many',
  'authority_revoked',
  'audit_unavailable',
]
