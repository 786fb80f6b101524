import type { McpResource } from '../../../db/mcp/resources.ts'
import type { HangupSignal, MemoryReservation } from '../../../plugins/plugin.ts'
import { MODERN_VERSION } from '../protocol/versions.ts'
import type { HeaderList } from './exchange.ts'
import { type McpAnswer, sendMcpRequest, type UpstreamPermit, type UpstreamTransport } from './request.ts'

export interface ModernCall {
  readonly permit: UpstreamPermit
  readonly resource: McpResource
  readonly method: string
  /** JSON text of the params object, as the upstream must see it; null for none. */
  readonly params: string | Buffer | null
  /** `mcp-name` and `mcp-param-*`. Any other is left out; the rest is put in here. */
  readonly headers: Readonly<Record<string, string>>
  readonly hangup: HangupSignal
  /** The account that the answer is counted on; null if no caller waits for it. */
  readonly held: MemoryReservation | null
}

/** Sends a request to an upstream of the modern era: closing the connection is all that cancels it. */
export const callModern = (transport: UpstreamTransport, call: ModernCall): Promise<McpAnswer> =>
  sendMcpRequest(transport, {
    ...call,
    requestId: transport.nextId(),
    era: 'modern',
    session: 'none',
    headers: modernHeaders(call),
    settled: NOTHING,
  })

const NOTHING = (): void => {}

/** Makes the headers of every modern request, and those that repeat params. No other name passes. */
function modernHeaders({ method, headers }: ModernCall): HeaderList {
  const list = ['mcp-protocol-version', MODERN_VERSION, 'mcp-method', method]
  for (const [written, value] of Object.entries(headers)) {
    const name = written.toLowerCase()
    if (name === 'mcp-name' || name.startsWith('mcp-param-')) list.push(name, value)
  }
  return list
}
