import { MODERN } from '../protocol/versions.ts'
import type { UpstreamAnswer } from './answer.ts'
import type { UpstreamCall } from './call.ts'
import { send, type Transport } from './request.ts'

type Headers = Readonly<Record<string, string>>

/** The headers that every request of the modern era carries (2026-07-28, streamable HTTP: request metadata). */
const modernHeaders = (method: string): Headers => ({
  'mcp-protocol-version': MODERN,
  'mcp-method': method,
})

/** Sends a request to an upstream of the modern era, which keeps no sessions: closing the connection is all that cancels it. */
export async function callModern(
  transport: Transport,
  call: Omit<UpstreamCall, 'owner' | 'client'>,
): Promise<UpstreamAnswer> {
  const { resource, method, params, signal } = call
  const { answer } = await send(transport, {
    resource,
    requestId: transport.nextId(),
    era: 'modern',
    session: 'none',
    method,
    params,
    headers: { ...mirrored(call.headers), ...modernHeaders(method) },
    signal,
    settled: () => {},
  })
  return answer
}

/** Those headers that repeat parts of the params. No other name passes, whoever asked for it. */
function mirrored(headers: Headers): Headers {
  const lowerCased = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value] as const)
  return Object.fromEntries(
    lowerCased.filter(([name]) => name === 'mcp-name' || name.startsWith('mcp-param-')),
  )
}
