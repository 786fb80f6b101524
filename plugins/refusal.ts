import type { FieldError } from '../db/capabilities.ts'
import type { JsonObject } from '../db/support/json.ts'
import { DatabaseUnavailable } from '../db/support/unavailable.ts'
import type { Receipt, SummarisedRefusal } from './arrival.ts'

/** The outside of a refusal: its HTTP status, the vendors' word for its kind, and one plain sentence. */
interface Reason {
  readonly status: number
  readonly type: ErrorType
  readonly message: string
  /** True if sending the same again cannot help, although the status alone would let an SDK try. */
  readonly final?: boolean
  /** The error code of the challenge that goes with a 401 (RFC 6750 §3.1, RFC 9449 §7.1). Absent: none. */
  readonly challenge?: string
}

/** The vendors' vocabulary for kinds of error (docs/protocol.md#error-types). */
export type ErrorType =
  | 'invalid_request_error'
  | 'authentication_error'
  | 'permission_error'
  | 'not_found_error'
  | 'rate_limit_error'
  | 'api_error'
  | 'overloaded_error'

const invalid = (status: number, message: string): Reason => ({
  status,
  type: 'invalid_request_error',
  message,
})
const unauthenticated = (message: string, challenge?: string): Reason => ({
  status: 401,
  type: 'authentication_error',
  message,
  ...(challenge !== undefined && { challenge }),
})
const forbidden = (message: string): Reason => ({ status: 403, type: 'permission_error', message })
const fault = (status: number, message: string): Reason => ({ status, type: 'api_error', message })
const missing = (message: string): Reason => ({ status: 404, type: 'not_found_error', message })
const throttled = (message: string): Reason => ({ status: 429, type: 'rate_limit_error', message })
const finalReason = (reason: Reason): Reason => ({ ...reason, final: true })
const unacceptable = (message: string): Reason => invalid(422, message)
const overloaded = (message: string): Reason => ({ status: 503, type: 'overloaded_error', message })

/** Every reason of a refusal. A status code is written here and nowhere else. */
export const REFUSAL_REASONS = {
  bad_request: invalid(
    400,
    'The request is not well-formed HTTP. Check the client that sends it, and what is between.',
  ),
  base_url_wrong: invalid(
    400,
    'The path starts with /v1 twice. Remove /v1 from the base URL of this client.',
  ),
  body_invalid: invalid(
    400,
    'The body is not a JSON object that this service accepts. Send one JSON object in UTF-8, without a byte order mark, in which no name stands twice.',
  ),
  body_encoded: invalid(415, 'The body must not be compressed: send it without content-encoding.'),
  body_too_large: invalid(413, 'The body is larger than this endpoint accepts. Send less.'),
  body_timeout: invalid(408, 'The request did not arrive in time. Send it again, without pauses.'),
  body_unprocessable: invalid(422, 'The body has fields that are not valid. detail.errors lists them.'),
  headers_too_large: invalid(
    431,
    'The request headers are larger than this service accepts. Send fewer or shorter ones.',
  ),
  not_found: missing('There is nothing at this path. Check the path and the base URL of this client.'),
  method_not_allowed: invalid(405, 'This path does not support this method. Allow lists those that it does.'),
  expectation_failed: invalid(417, 'The Expect header may only be 100-continue.'),
  conflict: invalid(
    409,
    'Something with this name already exists. Choose another name, or change what exists.',
  ),
  two_people_required: invalid(
    409,
    'This change needs a second operator, but it cannot wait for one. Make it on the machine of the gateway.',
  ),
  proposals_full: invalid(
    409,
    'Too many changes are waiting for a second operator. Confirm or decline some of them first.',
  ),
  last_owner: invalid(
    409,
    'This would lock out the last operator who holds admin.operators. Give admin.operators to another operator first.',
  ),
  expectation_broken: invalid(
    409,
    'This change would break an expectation of the operators. Change the expectation first, or force the change.',
  ),
  rehearsal_required: invalid(428, 'Rehearse this change first, and name the rehearsal in If-Rehearsed.'),
  precondition_failed: invalid(412, 'The object has changed since it was read. Read it again.'),

  certificate_required: unauthenticated(
    'No client certificate was presented. Connect with the certificate and the key of a principal.',
  ),
  certificate_not_pinned: unauthenticated(
    'This client certificate is not pinned to any principal. Use the newest certificate of the principal, or ask an operator to enroll this one.',
    'invalid_token',
  ),
  certificate_not_valid_now: unauthenticated(
    'The client certificate has expired or is not valid yet. Use one that is valid, or correct the clock.',
    'invalid_token',
  ),
  principal_deactivated: unauthenticated(
    'This principal has been deactivated. Ask an operator to activate it.',
    'invalid_token',
  ),
  proof_required: unauthenticated(
    'A DPoP proof is required. Sign one for this request, and send it as the DPoP header.',
  ),
  proof_invalid: unauthenticated(
    'The DPoP proof is not valid for this request. Sign a new one for each request: its method, its URL, and the key that is pinned.',
    'invalid_dpop_proof',
  ),
  use_dpop_nonce: unauthenticated(
    'The DPoP proof must contain the nonce of the DPoP-Nonce header. Sign a new proof.',
    'use_dpop_nonce',
  ),
  token_invalid: unauthenticated(
    'The access token is not valid for this request. Request a new one, and use it with the certificate and key that asked for it.',
    'invalid_token',
  ),

  token_required: unauthenticated(
    'No access token was sent. Sign in, and send the token as a Bearer or DPoP token.',
  ),
  proof_too_weak: forbidden(
    'This call needs a stronger proof of who calls: a token that is bound to a key of the client, or a client certificate.',
  ),

  origin_not_allowed: forbidden(
    'Pages of other sites may not call this service. An operator can add the origin to allowed_origins.',
  ),

  // About enrollment: why a certificate, its key or a request for one is not accepted. certs/ says it more
  // closely.
  ca_attached_already: invalid(409, 'This CA is already attached.'),
  ca_relied_on: invalid(
    409,
    'Some agents rely on this CA alone. First let another CA vouch for them, or confirm with lock_out=true that they lose access.',
  ),
  ca_requested: unacceptable(
    'The request asks for more than a client certificate. Leave CA rights and other usages out.',
  ),
  certificate_expired: unacceptable('A certificate has expired. Use one that is valid.'),
  certificate_not_yet_valid: unacceptable(
    'A certificate is not valid yet. Wait until it is, or correct the clock.',
  ),
  certificate_unreadable: unacceptable(
    'The certificate or the certificate request cannot be read. Send it in PEM.',
  ),
  chain_invalid: unacceptable(
    'The certificate has no valid chain to a trusted CA. Send the intermediate certificates too, or attach the CA that issued it.',
  ),
  client_auth_missing: unacceptable(
    'A certificate does not allow client authentication. Issue one with the extended key usage clientAuth.',
  ),
  digital_signature_missing: unacceptable(
    'The certificate does not allow digital signatures. Issue one with the key usage digitalSignature.',
  ),
  foreign_san: unacceptable("The request asks for names that are not the principal's own. Leave them out."),
  is_a_ca: unacceptable('This is a CA certificate, not a client certificate. Send the leaf.'),
  key_mismatch: unacceptable(
    'The private key does not belong to the certificate. Send the key that it was issued for.',
  ),
  key_too_weak: unacceptable(
    'A key is too weak, or its type is not accepted. Use EC P-256, P-384 or P-521, or RSA of 2048 to 8192 bits.',
  ),
  no_ca_attached: unacceptable(
    'No CA is attached that could vouch for this certificate. Attach its CA first.',
  ),
  not_a_ca: unacceptable(
    'This is not a CA certificate that may sign other certificates. Send the certificate of the CA itself.',
  ),
  private_key_unreadable: unacceptable('The private key cannot be read. Send it unencrypted and in PEM.'),
  signature_invalid: unacceptable(
    'The request is not signed by the private key that belongs to its public key. Make the request with that key.',
  ),
  signature_too_weak: unacceptable(
    'A signature is not ECDSA or RSA with SHA-256 or better. Have it issued with one of these.',
  ),
  spiffe_ambiguous: unacceptable(
    'The certificate has a second URI in addition to its SPIFFE id. Issue one with that id alone.',
  ),
  spiffe_malformed: unacceptable(
    'The URI in the certificate is not a SPIFFE id. Issue one with spiffe://<trust domain>/<path>.',
  ),
  spiffe_mismatch: unacceptable(
    'The SPIFFE id in the certificate does not name this agent. Use the certificate of this agent.',
  ),
  spiffe_missing: unacceptable('The certificate has no SPIFFE id. Issue one with a SPIFFE id as URI.'),
  unknown_critical_extension: unacceptable('A critical extension is not supported. Issue one without it.'),

  // About the token endpoint: proxy/auth/refusal.ts gives them their form there.
  token_request_invalid: invalid(
    400,
    'This is not a valid token request. Send grant_type=client_credentials as a form, and each name once.',
  ),
  grant_unsupported: invalid(400, 'Only grant_type=client_credentials is supported.'),
  scope_invalid: invalid(
    400,
    'The scope names a capability that this principal does not hold. Leave it out, or ask an operator for the capability.',
  ),
  target_invalid: invalid(
    400,
    'The resource does not belong to this service. Leave resource out, or name a public URL of this service.',
  ),
  token_throttled: throttled('Too many access tokens were issued to this principal. Wait a minute.'),
  client_invalid: unauthenticated(
    "client_id does not match the principal of this certificate. Leave client_id out, or connect with that principal's certificate.",
  ),
  assertion_invalid: unauthenticated(
    'The client assertion is not valid for this connection. Sign a new one with the key of the client certificate and a new challenge.',
  ),

  // About a certificate that its holder renews.
  renewal_refused: invalid(409, 'This certificate cannot be renewed here. Ask an operator for a new one.'),
  renewal_throttled: throttled('This principal has requested too many certificates. Wait a minute.'),

  capability_missing: forbidden(
    'The principal does not hold the required capability. Ask an operator for it.',
  ),
  authority_revoked: forbidden(
    'The permission for this call was revoked while the call was waiting. Ask an operator for it.',
  ),
  own_authority: forbidden('You cannot add capabilities to yourself. Ask another operator.'),
  machine_only: forbidden("This is possible only on the gateway's own machine, over its control socket."),
  own_proposal: forbidden(
    'Another operator must confirm this proposal, with a certificate or a sign-in of their own.',
  ),
  policy_denied: forbidden('A policy of this organisation refuses this call. Ask an operator why.'),
  content_refused: forbidden(
    'A check of content refuses this: it holds something that may not pass. Take it out, or ask an operator.',
  ),
  approval_required: forbidden(
    "This call needs a person's approval. It has not been made; once it is approved, send the identical call again.",
  ),
  consent_required: forbidden(
    'This call needs an account at its server. It has not been made; once one is connected, send it again.',
  ),
  own_call: forbidden(
    'You cannot decide about a call of your own, and neither can the operator secret. Ask another operator.',
  ),
  signed_out: unauthenticated('This browser is not signed in. Sign in first.'),
  csrf_invalid: forbidden(
    'X-Csrf-Token is missing or does not match this session. Send that of GET /v1/admin/session, or load the page again.',
  ),
  sign_in_not_begun: invalid(
    400,
    'This sign-in was not started in this browser, or it took too long. Start again.',
  ),
  sign_in_throttled: throttled('This operator has signed in too often. Wait a minute.'),
  sign_in_refused: forbidden('This sign-in was refused. Ask whoever runs this gateway.'),
  sign_in_unavailable: overloaded('The identity provider is not available now. Try again in a minute.'),
  logout_token_invalid: invalid(400, 'The logout token is not valid. Send a new one, made for this client.'),
  admin_secret_invalid: forbidden(
    'X-Admin-Secret is missing or wrong. Send the operator secret, or connect with the certificate of an operator.',
  ),
  admin_throttled: throttled('Too many failed attempts from this address. Wait a minute.'),

  member_refused: invalid(
    400,
    'The body has a member that this gateway does not send to the provider of this model. Leave it out, or ask an operator to allow it.',
  ),
  provider_state_refused: invalid(
    400,
    'The body names what the provider keeps for somebody else. Send the content itself, or ask an operator to share it.',
  ),
  model_unknown: missing(
    'No configured provider serves this model. GET /v1/models lists those that can be called.',
  ),
  model_not_found: missing('This service does not list this model. GET /v1/models lists those that it does.'),
  not_sealed_yet: missing('The rows that you asked for are not sealed yet. Try again in a second.'),
  sealing_stopped: overloaded(
    'The ledger is not sealed any more, so nothing of it can be proven that is newer than its last checkpoint. Tell the operator.',
  ),
  dialect_translation_unavailable: finalReason(
    invalid(
      400,
      'The provider of this model speaks another API, and this call is not translated. Call the model at the path of its own API.',
    ),
  ),
  translation_lossy: finalReason(
    invalid(
      400,
      'The provider of this model cannot be told all of this request. Leave out what is named, or ask an operator to accept that loss.',
    ),
  ),
  loop_detected: finalReason(
    fault(
      508,
      'This call has been through this gateway already: a provider of it leads back to it. Tell the operator.',
    ),
  ),
  provider_not_configured: finalReason(
    overloaded('No key is configured for the provider of this model. Tell the operator.'),
  ),
  provider_auth_failed: finalReason(
    fault(502, "The provider refused this gateway's key. Tell the operator."),
  ),
  // With the provider's own status, and in its words where they can be passed on.
  provider_refused: invalid(400, 'The provider refused this request.'),
  provider_unreachable: fault(502, 'The provider could not be reached. Try again shortly.'),
  provider_failed: fault(502, 'The provider answered with an error. Try again shortly.'),
  // Anthropic's own status, by which clients choose another model.
  provider_overloaded: {
    status: 529,
    type: 'overloaded_error',
    message: 'The provider is overloaded. Try again shortly, or call another model.',
  },
  // It has the request, may still be at work on it, and would take as long again.
  provider_timeout: finalReason(
    fault(
      504,
      'The provider did not answer in time. It may still be at work: a second call is paid for too.',
    ),
  ),
  provider_rate_limited: throttled(
    'The provider is rate limiting this gateway. Try again after Retry-After, or call another model.',
  ),

  // About the limits of operators: plugins/limits/refusal.ts says which, and until when.
  stopped: forbidden('Operators have stopped this. Ask them when it goes on; another try cannot help.'),
  limit_reached: throttled('A limit of the operators is reached. Try again after Retry-After.'),
  limit_unbounded: invalid(
    400,
    'A strict limit applies to this call, which does not say how long its answer may be. State max_tokens, or the like of its API.',
  ),
  limit_unpriced: invalid(
    400,
    'A limit of cost applies to this call, and its model has no price. Call another model, or tell the operator.',
  ),
  limits_too_many: finalReason(overloaded('Too many limits apply to this call. Tell the operator.')),

  // About the MCP endpoint: their JSON-RPC codes stand in proxy/mcp/refusal.ts.
  mcp_message_invalid: invalid(
    400,
    'The body is not one JSON-RPC 2.0 message. Send one at a time, in UTF-8, without a byte order mark.',
  ),
  mcp_request_invalid: invalid(
    400,
    'The body is not a JSON-RPC 2.0 request. Send jsonrpc, method and params as MCP has them.',
  ),
  mcp_meta_invalid: invalid(400, 'params._meta lacks members that this protocol version requires.'),
  mcp_header_mismatch: invalid(
    400,
    'The MCP headers do not match the body. Send in them what the body says.',
  ),
  mcp_version_unsupported: invalid(
    400,
    'This protocol version is not supported. Use one of detail.supported.',
  ),
  mcp_session_unknown: missing('There is no such session. Start a new one with initialize.'),
  mcp_method_unknown: missing(
    'This method is not supported here. Call those that the capabilities of the handshake list.',
  ),
  mcp_params_invalid: invalid(
    422,
    'The parameters of this call are not valid. Send what the schema of the method or tool asks for.',
  ),
  mcp_tool_unknown: missing('There is no such tool. Call tools/list for those that there are.'),
  mcp_not_bound: forbidden('The principal has no binding to this resource. Ask an operator for one.'),
  mcp_tool_quarantined: forbidden(
    'The definition of this tool has changed. An operator must approve it first.',
  ),
  mcp_unreachable: fault(
    502,
    'The MCP server behind this tool could not be reached in time. Try again shortly.',
  ),
  mcp_failed: fault(
    502,
    'The MCP server behind this tool answered with an error. Try again shortly, and tell the operator if that does not help.',
  ),
  mcp_rate_limited: throttled(
    'The MCP server behind this tool is rate limiting this gateway. Try again after Retry-After.',
  ),

  audit_unavailable: overloaded(
    'The audit ledger cannot record this call, so the call is refused. Try again shortly, and tell the operator if that does not help.',
  ),
  overloaded: overloaded('The service is too busy. Try again shortly.'),
  // Nobody reads this one: it stands in the log and in the outcome row.
  client_gone: invalid(499, 'The caller disconnected before the answer.'),
  plugin_failed: finalReason(
    fault(500, 'A check of this gateway failed, so the call is refused. Tell the operator the request id.'),
  ),
  internal: fault(500, 'Something inside this gateway failed. Tell the operator the request id.'),
} as const satisfies Record<string, Reason>

export type RefusalReason = keyof typeof REFUSAL_REASONS

/** The reasons that earlier versions answered with, and those that took their place. */
export const FORMER_REASONS = {
  expired: 'certificate_expired',
  no_client_auth: 'client_auth_missing',
  unreadable: 'certificate_unreadable',
  weak_key: 'key_too_weak',
  weak_signature: 'signature_too_weak',
} as const satisfies Record<string, RefusalReason>

/** The names that plugins had before, as `refused_by` of older ledger rows says them, and their names now. */
export const FORMER_PLUGIN_NAMES = {
  'admin-secret': 'admin_secret',
  'api-key': 'api_key',
  'local-operator': 'local_operator',
  mcp_asked: 'mcp_peek',
  mcp_method: 'capability',
  mcp_origin: 'origin',
  mcp_scope: 'mcp_resource_path',
  'single-use': 'single_use',
  'token-proof': 'token_proof',
  'token-request': 'token_request',
} as const

/** The words in which a provider refused, for `error` of the answer. Absent: ours. */
export interface ProviderErrorFields {
  readonly type?: string
  readonly code?: string
  readonly param?: string
  /** s since the epoch. */
  readonly resets_at?: number
}

interface RefusalOptions {
  /** The status of another service's refusal, if it is passed on in place of the reason's own. */
  readonly status?: number
  /** Tells SDKs whether to leave off, if the reason alone does not decide it. */
  readonly final?: boolean
  /** For the caller. Never holds anything internal. */
  readonly detail?: Readonly<Record<string, unknown>>
  /** For the log only. */
  readonly cause?: unknown
  /** A better sentence than the reason's own. For the caller. */
  readonly message?: string
  /** The kind of error in another service's words, that go with its message. For the caller. */
  readonly said?: ProviderErrorFields
  /** Further members of the outcome row. Not for the caller. */
  readonly report?: JsonObject
  /** The error code of a 401's challenge, if it is not the reason's own. */
  readonly challenge?: string
  /** Headers of the answer, e.g. WWW-Authenticate or Retry-After. */
  readonly headers?: Readonly<Record<string, string>>
  /** The record of it, if the recorder refuses. */
  readonly recorded?: Receipt | SummarisedRefusal | null
}

/**
 * Makes a refusal of a thrown value: itself, or that the database is away; else for the `otherwise` reason.
 */
export function toRefusal(thrown: unknown, otherwise: RefusalReason): Refusal {
  if (thrown instanceof Refusal) return thrown
  if (!(thrown instanceof DatabaseUnavailable)) return new Refusal(otherwise, { cause: thrown })
  return new Refusal('audit_unavailable', { cause: thrown, headers: { 'retry-after': '1' } })
}

/** The one kind of refusal, turned into HTTP in `proxy/http/refusal.ts`. Has no stack of its own. */
export class Refusal extends Error {
  readonly reason: RefusalReason
  readonly status: number
  readonly type: ErrorType
  readonly detail: Readonly<Record<string, unknown>>
  readonly said: ProviderErrorFields
  readonly report: JsonObject
  readonly headers: Readonly<Record<string, string>>
  /** True if an SDK should leave off: it cannot cure this by sending the same again. */
  readonly final: boolean
  /** The error code of a 401's challenge, or null. */
  readonly challenge: string | null
  readonly recorded: Receipt | SummarisedRefusal | null

  constructor(reason: RefusalReason, options: RefusalOptions = {}) {
    const known: Reason = REFUSAL_REASONS[reason]
    const { type, message, challenge } = known
    const status = options.status ?? known.status
    // An answer, no fault: nobody looks for its line, which costs more than all the rest of it.
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = 0
    super(options.message ?? message, { cause: options.cause })
    Error.stackTraceLimit = stackTraceLimit
    this.reason = reason
    this.status = status
    this.type = type
    this.detail = options.detail ?? {}
    this.said = options.said ?? {}
    this.report = options.report ?? {}
    this.headers = options.headers ?? {}
    this.final = options.final ?? known.final ?? (status < 500 && status !== 429)
    this.challenge = options.challenge ?? challenge ?? null
    this.recorded = options.recorded ?? null
  }
}

/** A time of a token's, in its maker's words (RFC 7519 §4.1.4 to 6), that our clock does not bear out. */
export interface WrongTime {
  readonly claim: 'iat' | 'nbf' | 'exp'
  /** s since the epoch. */
  readonly time: number
}

interface ClockFault extends WrongTime {
  /** Begins the sentence. */
  readonly what: string
  /** ms since the epoch. */
  readonly at: number
  /** Ends the sentence. */
  readonly cure: string
  readonly cause?: unknown
}

/** Makes the refusal of something that says a time which is too far from ours. */
export function clockRefusal(reason: RefusalReason, { cause, cure, ...fault }: ClockFault): Refusal {
  return new Refusal(reason, {
    cause,
    message: `${clockSentence(fault)} ${cure}`,
    detail: { clock_difference_s: differenceS(fault) },
  })
}

/** Says what is wrong with a time, by which clock, and by how much. */
export function clockSentence(fault: Pick<ClockFault, 'claim' | 'time' | 'what' | 'at'>): string {
  const difference = differenceS(fault)
  const gap = `${Math.abs(difference)} s`
  const clock = `the clock of this gateway (${new Date(fault.at).toISOString()})`
  if (fault.claim === 'exp') return `${fault.what} expired ${gap} ago by ${clock}.`
  if (fault.claim === 'nbf') return `${fault.what} is not valid for another ${gap} by ${clock}.`
  return `${fault.what} was issued ${gap} ${difference > 0 ? 'ahead of' : 'behind'} ${clock}.`
}

const differenceS = ({ time, at }: Pick<ClockFault, 'time' | 'at'>): number => Math.round(time - at / 1000)

/** The cure for a client's clock. */
export const SET_CLOCK =
  'Set the clock of the client, or sign by the Date header of this answer, again for each request.'

/** Makes the refusal of a body whose fields break the rules: 422, each field named. */
export function unprocessableBody(errors: readonly FieldError[]): Refusal {
  const [first] = errors
  const message = first ? `${first.field}: ${first.message}` : REFUSAL_REASONS.body_unprocessable.message
  return new Refusal('body_unprocessable', { message, detail: { errors } })
}

/** Makes the refusal of something that is not there, in words of its own. */
export const notFound = (message: string): Refusal => new Refusal('not_found', { message })

/** Makes the refusal of what contradicts the present state, in words of its own. */
export const conflict = (message: string, cause?: unknown): Refusal =>
  new Refusal('conflict', { message, cause })
