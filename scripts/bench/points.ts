import type { Ground, Identity } from './ground.ts'
import type { Job } from './job.ts'
import { type Kind, requestBody, requestText } from './messages.ts'

/** One way of loading a server. */
export interface Point {
  readonly name: string
  readonly connections: number
  readonly kind: Kind
  /** Default: the agent that holds llm.chat. */
  readonly as?: 'denied' | 'nobody'
  /** Default: 200. */
  readonly expect?: number
  /** Requests per second; `half`: of what the gateway carried at c=64 in this run. Default: a closed loop. */
  readonly rate?: number | 'half'
  readonly reconnect?: boolean
  /** Lines added to the request's head. */
  readonly headers?: readonly string[]
}

const json = (connections: number): Point => ({ name: 'json', connections, kind: 'json' })

/** What every server gets before its first point. */
export const PRIME: Point = json(64)

export const LADDER: readonly Point[] = [json(1), json(16), json(64)]
export const CEILING: readonly Point[] = [
  json(64),
  { name: 'handshakes', connections: 16, kind: 'json', reconnect: true },
]
export const HALF_LOAD: Point = { name: 'half load', connections: 64, kind: 'json', rate: 'half' }
export const BURST: Point = { name: 'burst', connections: 16, kind: 'burst' }
/** 100 answers a second that take some 50 ms each. */
export const PACED: Point = { name: 'paced', connections: 64, kind: 'paced', rate: 100 }
export const MANY: readonly Point[] = [
  // So few requests that the connections are as good as idle.
  { name: 'idle', connections: 256, kind: 'json', rate: 10 },
  json(256),
]

export const REFUSED: readonly Point[] = [
  { name: 'denied', connections: 64, kind: 'json', as: 'denied', expect: 403 },
  { name: 'wrong type', connections: 64, kind: 'json', expect: 400, headers: ['content-type: text/plain'] },
  // These lose their connection with the answer, so each pays for a handshake.
  { name: 'no certificate', connections: 16, kind: 'json', as: 'nobody', expect: 401, reconnect: true },
  {
    name: 'bad framing',
    connections: 16,
    kind: 'json',
    expect: 400,
    reconnect: true,
    headers: ['host: localhost'],
  },
]

interface Target {
  readonly port: number
  readonly pid: number
  /** False: plain TCP. */
  readonly tls: boolean
  /** Requests per second for `half`. */
  readonly halfRate: number
  readonly warmupS: number
  readonly seconds: number
}

/** What the generator is told for a point. */
export function jobOf(point: Point, ground: Ground, target: Target): Job {
  const { port, pid, tls, halfRate, warmupS, seconds } = target
  const body = requestBody(point.kind)
  return {
    port,
    pid,
    tls: tls ? credentials(point, ground) : null,
    request: requestText(body, point.headers),
    expect: point.expect ?? 200,
    connections: point.connections,
    rate: point.rate === 'half' ? halfRate : (point.rate ?? null),
    reconnect: point.reconnect ?? false,
    warmupS,
    seconds,
  }
}

function credentials({ as }: Point, { allowed, denied }: Ground): Job['tls'] {
  const { ca, cert, key }: Identity = as === 'denied' ? denied : allowed
  return as === 'nobody' ? { ca, cert: null, key: null } : { ca, cert, key }
}
