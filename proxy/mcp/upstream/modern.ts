import type { McpResource } from '../../../db/mcp/resources.ts'
import type { Held } from '../../../plugins/plugin.ts'
import { MODERN } from '../protocol/versions.ts'
import type { McpAnswer } from './answer.ts'
import { send, type Transport, type UpstreamPermit } from './request.ts'

type Headers = Readonly<Record<string, string>>

export interface ModernCall {
  readonly permit: UpstreamPermit
  readonly resource: McpResource
  readonly method: string
  /** JSON text of the params object, as the upstream must see it; null for none. */
  readonly params: string | Buffer | null
  /** `mcp-name` and `mcp-param-*`. Any other is left out; the rest is put in here. */
  readonly headers: Headers
  /** The caller hung up: the request is destroyed at once. */
  readonly signal: AbortSignal
  /** The account that the answer is counted on; null where no caller waits for it. */
  readonly held: Held | null
}

/**
 * The headers that every request of the modern era carries (2026-07-28, streamable HTTP: request metadata).
 */
const modernHeaders = (method: string): Headers => ({
  'mcp-protocol-version': MODERN,
  'mcp-method': method,
})

/**
 * Sends a request to an upstream of the modern era, which keeps no sessions: closing the connection is all
 * that cancels the request.
 */
export async function callModern(transport: Transport, call: ModernCall): Promise<McpAnswer> {
  const { permit, resource, method, params, signal, held } = call
  const { answer } = await send(transport, {
    permit,
    resource,
    requestId: transport.nextId(),
    era: 'modern',
    session: 'none',
    method,
    params,
    headers: { ...mirrored(call.headers), ...modernHeaders(method) },
    signal,
    held,
    settled: () => {},
  })
  return answer
}

/** Keeps the headers that repeat members of the params. No other name passes, whoever set it. */
function mirrored(headers: Headers): Headers {
  const lowerCased = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value] as const)
  return Object.fromEntries(
    lowerCased.filter(([name]) => name === 'mcp-name' || name.startsWith('mcp-param-')),
  )
}
