import type { McpResource } from '../../../db/mcp/resources.ts'
import { Refusal, type RefusalReason } from '../../../plugins/refusal.ts'
import { limitSentence, McpUpstreamError } from '../upstream/errors.ts'

/** Makes the refusal of a failure of an upstream; any other error stays as it is. */
export function refusalOfUpstream(
  error: unknown,
  resource: McpResource,
  tool: string | null = null,
): unknown {
  if (!(error instanceof McpUpstreamError)) return error
  const { status, told, outcomeUnknown } = error
  const message = failureMessage(error, resource)
  return new Refusal(failureReason(error), {
    cause: error,
    detail: {
      resource: resource.name,
      ...(tool !== null && { tool }),
      ...(status !== null && { upstream_status: status }),
      ...retryDetail(told?.headers),
      ...(outcomeUnknown && { outcome: 'unknown' }),
    },
    ...(message !== undefined && { message }),
    headers: { ...told?.headers, ...(isCredentialsFailure(error) && { 'x-should-retry': 'false' }) },
    ...(told?.requestId && { report: { upstream_request_id: told.requestId } }),
  })
}

function failureReason({ kind, status }: McpUpstreamError): RefusalReason {
  if (kind === 'unreachable' || kind === 'timeout') return 'mcp_unreachable'
  return status === 429 ? 'mcp_rate_limited' : 'mcp_failed'
}

const isCredentialsFailure = ({ status }: McpUpstreamError): boolean => status === 401 || status === 403

/** Says what a caller can do about a failure; undefined if the reason's own sentence says it all. */
function failureMessage(error: McpUpstreamError, { auth_type: auth }: McpResource): string | undefined {
  const { limit, status, told, outcomeUnknown } = error
  if (outcomeUnknown)
    return "The MCP server's answer was lost. It may have done the work: look before you call again."
  if (limit !== null) return limitSentence(limit)
  if (isCredentialsFailure(error) && auth === 'oauth')
    return 'The MCP server refused the account of this call. It may lack the right to do this.'
  if (isCredentialsFailure(error))
    return "The MCP server refused this gateway's credentials. Tell the operator."
  return told?.words ? `The MCP server answered ${status}: ${told.words.message}` : undefined
}

/** States, for a client that sees no headers, when to call again. */
export function retryDetail(headers: Readonly<Record<string, string>> = {}): {
  readonly retry_after?: string
} {
  const after = headers['retry-after']
  return after === undefined ? {} : { retry_after: after }
}
