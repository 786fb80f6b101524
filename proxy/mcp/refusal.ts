import { isObject, type UnknownRecord } from '../../db/support/json.ts'
import type { Arrival } from '../../plugins/plugin.ts'
import type { Refusal, RefusalReason } from '../../plugins/refusal.ts'
import { refusalReply } from '../http/refusal.ts'
import type { Reply } from '../http/reply.ts'
import type { RenderRefusal } from '../http/route.ts'
import { PageRequired, urlQuestionMember } from './protocol/approval-required.ts'
import {
  errorMessage,
  HEADER_MISMATCH,
  METHOD_NOT_FOUND,
  responseMessage,
  UNSUPPORTED_VERSION,
} from './protocol/json-text.ts'
import { isValidRequestId, type McpMessage } from './protocol/message.ts'
import { META_KEYS, MODERN_VERSION, type ProtocolEra } from './protocol/versions.ts'

const INVALID_PARAMS = -32602

// docs/protocol.md#mcp-errors, JSON-RPC 2.0 §5.1, MCP 2026-07-28 (error codes). Any other reason is -32603.
const CODES: Partial<Record<RefusalReason, number>> = {
  body_invalid: -32700,
  mcp_message_invalid: -32600,
  mcp_request_invalid: -32600,
  body_encoded: -32600,
  body_too_large: -32600,
  mcp_session_unknown: -32600,
  mcp_method_unknown: METHOD_NOT_FOUND,
  mcp_params_invalid: INVALID_PARAMS,
  mcp_meta_invalid: INVALID_PARAMS,
  mcp_header_mismatch: HEADER_MISMATCH,
  mcp_version_unsupported: UNSUPPORTED_VERSION,
  capability_missing: -32005,
  authority_revoked: -32005,
  mcp_not_bound: -32000,
  mcp_unreachable: -32001,
  mcp_failed: -32003,
  mcp_rate_limited: -32003,
  mcp_tool_unknown: -32004,
  mcp_tool_quarantined: -32006,
  // Outside the ranges that JSON-RPC and MCP keep for themselves.
  policy_denied: -31005,
  proof_too_weak: -31006,
  limit_reached: -31009,
  stopped: -31010,
  content_refused: -31011,
  approval_required: -31007,
  consent_required: -31008,
}

/**
 * The codes that only this gateway can mean: an upstream's errors about bytes, headers and versions concern
 * ours, not the caller's. It may say itself that a method or a parameter is wrong (-32601, -32602).
 */
export const GATEWAY_ERROR_CODES: ReadonlySet<unknown> = new Set(
  Object.values(CODES).filter((code) => code !== METHOD_NOT_FOUND && code !== INVALID_PARAMS),
)

/** Refusals whose HTTP status a client acts on, whichever era it is of. */
const BY_STATUS: ReadonlySet<RefusalReason> = new Set<RefusalReason>([
  'body_invalid',
  'body_encoded',
  'body_too_large',
  'mcp_message_invalid',
  'mcp_meta_invalid',
  'mcp_header_mismatch',
  'mcp_version_unsupported',
  'mcp_session_unknown',
])

interface RefusedCallFacts {
  readonly message?: McpMessage
  readonly json?: UnknownRecord
}

/** Makes the URL of the document about the endpoint that was asked (RFC 9728). */
export type MetadataUrl = (asked: Pick<Arrival, 'headers' | 'path'>) => string

/** Renders the refusals of the MCP endpoint, with the message's id and era if they are sane. */
export const refuseMcp =
  (metadataUrl: MetadataUrl): RenderRefusal =>
  (refusal, facts) => {
    const { message, json }: RefusedCallFacts = facts as Arrival & RefusedCallFacts
    if (refusal instanceof PageRequired && refusal.question && message) return questionReply(refusal, message)
    return jsonRpcRefusal(refusal, {
      requestId: facts.id,
      id: message ? message.id : idOf(json),
      era: message ? message.era : guessedEra(facts, json),
      metadataUrl: metadataUrl(facts),
    })
  }

/** Asks the caller's client to open the page. */
function questionReply({ message: words, question }: PageRequired, { id }: McpMessage): Reply {
  if (!question) throw new Error('a page is asked for without a question')
  const { member, text } = urlQuestionMember(words, question)
  return {
    status: 200,
    headers: { 'content-type': 'application/json' },
    body: responseMessage(id, member, text),
  }
}

function idOf(json: RefusedCallFacts['json']): string | null {
  const id = json?.id
  return isValidRequestId(id) ? JSON.stringify(id) : null
}

function guessedEra({ headers }: Arrival, json: RefusedCallFacts['json']): ProtocolEra {
  const params = json?.params
  const meta = isObject(params) ? params._meta : undefined
  const declared = isObject(meta) ? meta[META_KEYS.version] : undefined
  return headers['mcp-protocol-version'] === MODERN_VERSION || declared === MODERN_VERSION
    ? 'modern'
    : 'legacy'
}

interface RefusedRequest {
  readonly requestId: string
  /** The JSON-RPC id, JSON text; null if it could not be read. */
  readonly id: string | null
  readonly era: ProtocolEra
  /** The document that says who issues tokens for the protected resource (RFC 9728 §5.1). */
  readonly metadataUrl: string
}

/**
 * Renders a refusal as a JSON-RPC error, over HTTP 200 if it is an answer of the protocol: SDKs lose the code
 * of anything else. A caller that is not known, or not allowed from its place, and a fault of the service
 * have their own status.
 */
export function jsonRpcRefusal(refusal: Refusal, { requestId, id, era, metadataUrl }: RefusedRequest): Reply {
  const { status, final, headers } = refusal
  if (status === 401) return withMetadataUrl(refusalReply(refusal, requestId), metadataUrl)
  if (refusal.reason === 'origin_not_allowed') return refusalReply(refusal, requestId)
  const own = hasOwnStatus(refusal, era)
  return {
    status: own ? status : 200,
    headers: {
      'content-type': 'application/json',
      ...(final && { 'x-should-retry': 'false' }),
      ...headers,
    },
    body: errorMessage(id, rpcError(refusal, requestId)),
    rpcCode: codeOf(refusal),
  }
}

const codeOf = ({ reason }: Refusal): number => CODES[reason] ?? -32603

function hasOwnStatus({ reason }: Refusal, era: ProtocolEra): boolean {
  // docs/protocol.md#mcp-errors: an older client hears both as an answer.
  if (reason === 'mcp_method_unknown' || reason === 'mcp_request_invalid') return era === 'modern'
  // A caller that has gone reads nothing, and one that took its request back wants no fault.
  return BY_STATUS.has(reason) || (CODES[reason] === undefined && reason !== 'client_gone')
}

/** Writes the error object of a refusal as JSON text. Nothing of `cause` appears in it. */
export function rpcError(refusal: Refusal, requestId: string): string {
  const { reason, message, detail } = refusal
  const { required_capability: capability } = detail
  const isCapability = reason === 'capability_missing' && typeof capability === 'string'
  return JSON.stringify({
    code: codeOf(refusal),
    // The specification's own words (spec §7); the sentence for people stands in data.
    message: isCapability ? `capability_missing: ${capability}` : message,
    data: { ...detail, reason, message, request_id: requestId },
  })
}

function withMetadataUrl(reply: Reply, metadataUrl: string): Reply {
  const { 'www-authenticate': challenge = 'DPoP', ...headers } = reply.headers ?? {}
  // The door of people has said it.
  if (String(challenge).includes('resource_metadata=')) return reply
  return {
    ...reply,
    headers: { ...headers, 'www-authenticate': `${challenge}, resource_metadata="${metadataUrl}"` },
  }
}
