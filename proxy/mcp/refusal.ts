import type { Refusal, RefusalReason } from '../../plugins/refusal.ts'
import { refusalReply } from '../http/refusal.ts'
import type { Reply } from '../http/reply.ts'
import { errorMessage } from './protocol/json-rpc.ts'

// WIRE.md §4, JSON-RPC 2.0 §5.1, MCP 2026-07-28 (error codes). What is not here is -32603.
const CODES: Partial<Record<RefusalReason, number>> = {
  body_invalid: -32700,
  mcp_message_invalid: -32600,
  mcp_request_invalid: -32600,
  body_too_large: -32600,
  mcp_session_unknown: -32600,
  mcp_method_unknown: -32601,
  mcp_params_invalid: -32602,
  mcp_meta_invalid: -32602,
  mcp_header_mismatch: -32020,
  mcp_version_unsupported: -32022,
  capability_missing: -32005,
  mcp_not_bound: -32000,
  mcp_unreachable: -32001,
  mcp_failed: -32003,
  mcp_tool_unknown: -32004,
  mcp_tool_quarantined: -32006,
  // Outside the ranges that JSON-RPC and MCP keep for themselves.
  policy_denied: -31005,
}

/**
 * The codes that only this gateway can mean: what an upstream says of bytes, headers and versions is about ours, not about the
 * caller's. That a method or a parameter is wrong (-32601, -32602) it may say itself.
 */
export const OUR_CODES: ReadonlySet<unknown> = new Set(
  Object.values(CODES).filter((code) => code !== -32601 && code !== -32602),
)

/** Refusals whose HTTP status a client acts on, whichever era it is of. */
const BY_STATUS: ReadonlySet<RefusalReason> = new Set<RefusalReason>([
  'body_invalid',
  'body_too_large',
  'mcp_message_invalid',
  'mcp_meta_invalid',
  'mcp_header_mismatch',
  'mcp_version_unsupported',
  'mcp_session_unknown',
])

/** Whose request it is that is refused. */
export interface Refused {
  readonly requestId: string
  /** The JSON-RPC id, JSON text; null where it could not be read. */
  readonly id: string | null
  readonly era: 'modern' | 'legacy'
  /** Where the protected resource says who issues tokens for it (RFC 9728 §5.1). */
  readonly metadataUrl: string
}

/**
 * How "no" looks at the MCP endpoint: a JSON-RPC error, since SDKs lose the code of anything else, over HTTP 200 where it is an
 * answer of the protocol. Who is not known, or not allowed from where it calls, is told over HTTP, with the challenge; a
 * fault of the service has its own status, so that a load balancer and a metric see it.
 */
export function jsonRpcRefusal(refusal: Refusal, { requestId, id, era, metadataUrl }: Refused): Reply {
  const { status, final, headers } = refusal
  if (status === 401) return challenged(refusalReply(refusal, requestId), metadataUrl)
  if (refusal.reason === 'origin_not_allowed') return refusalReply(refusal, requestId)
  const own = hasOwnStatus(refusal, era)
  return {
    status: own ? status : 200,
    headers: {
      'content-type': 'application/json',
      ...(final && { 'x-should-retry': 'false' }),
      ...(own && headers),
    },
    body: errorMessage(id, rpcError(refusal, requestId)),
  }
}

function hasOwnStatus({ reason }: Refusal, era: Refused['era']): boolean {
  // WIRE.md §4: an older client hears both as an answer.
  if (reason === 'mcp_method_unknown' || reason === 'mcp_request_invalid') return era === 'modern'
  // Who has gone reads nothing, and who took a request back wants no fault.
  return BY_STATUS.has(reason) || (CODES[reason] === undefined && reason !== 'client_gone')
}

/** The error object of a refusal, JSON text. Nothing of `cause` appears in it. */
export function rpcError({ reason, message, detail }: Refusal, requestId: string): string {
  const { required_capability: capability } = detail
  const isCapability = reason === 'capability_missing' && typeof capability === 'string'
  return JSON.stringify({
    code: CODES[reason] ?? -32603,
    // The specification's own words (spec §7); the sentence for people stands in data.
    message: isCapability ? `capability_missing: ${capability}` : message,
    data: { ...detail, reason, message, request_id: requestId },
  })
}

function challenged(reply: Reply, metadataUrl: string): Reply {
  const { 'www-authenticate': challenge = 'DPoP', ...headers } = reply.headers ?? {}
  return {
    ...reply,
    headers: { ...headers, 'www-authenticate': `${challenge}, resource_metadata="${metadataUrl}"` },
  }
}
