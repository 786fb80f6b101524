import type { Ground, Identity } from './ground/ground.ts'
import type { Job } from './job.ts'
import { leastBytesOf, type McpPlace, type McpRequest, mcpRequest } from './load/mcp-messages.ts'
import { PATH, requestBody, requestText } from './load/messages.ts'
import type { Proving } from './load/proving.ts'
import { wireCall } from './load/wire-calls.ts'
import type { Point } from './points.ts'

/** The longest measurement of one proof: sent again after a minute, it would be refused as stale. Seconds. */
const JUNK_LONGEST_S = 40

/** What is loaded, and for how long. */
export interface Loaded {
  readonly port: number
  readonly pid: number
  /** False: plain TCP. */
  readonly tls: boolean
  readonly warmupS: number
  readonly seconds: number
  /** Where tools are called, where it is not our gateway and not the MCP server. */
  readonly mcp?: McpPlace | undefined
  /** Default: as long as it takes. */
  readonly enough?: number
}

/**
 * Makes the generator's job for a point, whose rate is a number by now. `proving`: the result of `prove` for it.
 */
export function jobOf(point: Point, ground: Ground, target: Loaded, proving: Proving | null): Job {
  const { port, pid, tls, warmupS, seconds, mcp, enough = null } = target
  const isJunk = point.proof !== undefined && point.proof !== 'fresh'
  const { path, headers, body } = requestOf(point, !tls, mcp)
  return {
    port,
    pid,
    tls: tls ? credentials(point, ground) : null,
    request: requestText(body, [...headers, ...(point.headers ?? []), ...(proving?.headers ?? [])], path),
    proofs: proving?.proofs ?? null,
    expect: point.expect ?? 200,
    leastBytes: typeof point.kind === 'string' ? 0 : leastBytesOf(point.kind),
    connections: point.connections,
    rate: typeof point.rate === 'number' ? point.rate : null,
    reconnect: point.reconnect ?? false,
    warmupS,
    seconds: isJunk ? Math.min(seconds, JUNK_LONGEST_S) : seconds,
    enough,
  }
}

/**
 * Returns the same chat for every server; the upstream itself knows its tools by other names than the
 * gateway.
 */
function requestOf({ kind, body, wires }: Point, direct: boolean, mcp: McpPlace | undefined): McpRequest {
  if (typeof kind === 'string' && wires) return wireCall(wires, kind, body)
  if (typeof kind === 'string') return { path: PATH, headers: [], body: requestBody(kind, body) }
  return mcpRequest(kind, direct, mcp)
}

function credentials({ as }: Point, ground: Ground): Job['tls'] {
  if (as === 'nobody') return { ca: ground.allowed.ca, cert: null, key: null }
  const { ca, cert, key }: Identity = ground[as ?? 'allowed']
  return { ca, cert, key }
}
