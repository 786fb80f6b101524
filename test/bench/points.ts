import type { ProtocolEra } from '../../proxy/mcp/protocol/versions.ts'
import type { McpCall } from './load/mcp-messages.ts'
import type { Kind, LongBody } from './load/messages.ts'
import type { CallWires } from './load/wire-calls.ts'

export type JunkProof = 'oversized proof' | 'other typ' | 'stale iat' | 'bad signature' | 'replayed proof'

/** One kind of load on a server. */
export interface Point {
  readonly name: string
  readonly connections: number
  /** A chat call whose answer is of that kind, or a call of a tool. */
  readonly kind: Kind | McpCall
  /** The body of a chat call. Default: 489 bytes. */
  readonly body?: LongBody
  /** The APIs of a chat call, where caller or provider speaks another than Chat Completions. */
  readonly wires?: CallWires
  /** Default: the agent that holds llm.chat and has no DPoP key. `proven`: the one that holds it and has. */
  readonly as?: 'denied' | 'nobody' | 'proven'
  /** A DPoP proof: a new one with each request, or always the same that must be refused. */
  readonly proof?: 'fresh' | JunkProof
  /** True where an access token comes with the proof, bound to certificate and key. */
  readonly token?: boolean
  /** Default: 200. */
  readonly expect?: number
  /** Requests per second. Default: a closed loop. */
  readonly rate?: number | HalfOf
  readonly reconnect?: boolean
  /** Lines added to the request's head. */
  readonly headers?: readonly string[]
  /** The unmeasured load of a server before its first point of this sort. Default: the one of its subject. */
  readonly prime?: Point
  /** True where the process is to be as it was when it started. */
  readonly unprimed?: boolean
}

/**
 * Half of what the gateway carried at this point and c=64 in this run; by `core`: the rate that keeps half of its
 * core busy, which is less, because a call costs more the fewer are under way.
 */
export interface HalfOf {
  readonly halfOf: string
  readonly by: 'rate' | 'core'
}

export const json = (connections: number): Point => ({ name: 'json', connections, kind: 'json' })

/** The load of every server before its first point. */
export const PRIME: Point = json(64)

export const ALONE: Point = json(1)
export const LADDER: readonly Point[] = [ALONE, json(16), json(64)]
export const CEILING: readonly Point[] = [
  json(64),
  { name: 'handshakes', connections: 16, kind: 'json', reconnect: true },
]
export const HALF_CORE: Point = {
  name: 'half core',
  connections: 64,
  kind: 'json',
  rate: { halfOf: 'json', by: 'core' },
}
export const BURST: Point = { name: 'burst', connections: 16, kind: 'burst' }
const bodies = (name: string, body: LongBody): Point => ({ name, connections: 4, kind: 'json', body })
/** Bodies as coding agents send them, which repeat all that was said before, and a picture. */
export const BODIES: readonly Point[] = [
  bodies('230 KB', { bytes: 232_000, of: 'agent' }),
  bodies('800 KB', { bytes: 787_000, of: 'agent' }),
  bodies('4 MiB', { bytes: 4_194_304, of: 'picture' }),
]
/** More pictures at once than the share of one principal holds: all are served, by turns. */
export const PICTURES: Point = {
  ...bodies('64 pictures at once', { bytes: 4_194_304, of: 'picture' }),
  connections: 64,
}
/** A request as Claude Code sends it. */
const CLAUDE_CODE: LongBody = { bytes: 76_000, of: 'agent' }
const told = (from: CallWires['from'], to: CallWires['to'], kind: 'json' | 'burst'): Point => {
  const name = `${from === to ? from : `${from}>${to}`} ${kind === 'json' ? '76 KB' : 'stream'}`
  const call = { name, connections: 4, kind, wires: { from, to } } as const
  return kind === 'json' ? { ...call, body: CLAUDE_CODE } : call
}

/** Calls that are translated, each after the one of its provider's own API. */
export const TRANSLATED: readonly Point[] = [
  told('chat', 'chat', 'json'),
  told('messages', 'chat', 'json'),
  told('chat', 'chat', 'burst'),
  told('messages', 'chat', 'burst'),
  told('messages', 'messages', 'burst'),
  told('responses', 'messages', 'burst'),
]

/** 100 answers a second that take some 50 ms each. */
export const PACED: Point = { name: 'paced', connections: 64, kind: 'paced', rate: 100 }
/** The time after which each of many connections asks once more: a gateway closes them after 95 s. s. */
const IDLE_S = 40
/** So few requests that the connections are as good as idle. */
export const idling = (connections: number): Point => ({
  name: 'idle',
  connections,
  kind: 'json',
  rate: Math.ceil(connections / IDLE_S),
  unprimed: true,
})
export const MANY: readonly Point[] = [idling(256), json(256)]

export const REFUSED: readonly Point[] = [
  { name: 'denied', connections: 64, kind: 'json', as: 'denied', expect: 403 },
  { name: 'wrong type', connections: 64, kind: 'json', expect: 400, headers: ['content-type: text/plain'] },
  // These lose their connection with the answer, so each pays for a handshake: their rate is that of
  // handshakes.
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

/** {@link PRIME} and {@link LADDER} with a proof on each request. */
export const proven = (connections: number): Point => ({
  name: 'DPoP',
  connections,
  kind: 'json',
  as: 'proven',
  proof: 'fresh',
})
export const PROVEN: readonly Point[] = [proven(1), proven(16), proven(64)]
export const PROVEN_WITH_TOKEN: Point = { ...proven(64), name: 'DPoP + token', token: true }

const junk = (proof: JunkProof): Point => ({ ...proven(64), name: proof, proof, expect: 401 })

/**
 * Refused proofs on kept connections: a client that is known by a certificate keeps its own, however wrong
 * the proof.
 */
export const JUNK_PROOFS: readonly Point[] = [
  junk('oversized proof'),
  junk('other typ'),
  junk('stale iat'),
  junk('bad signature'),
  junk('replayed proof'),
]

const sameEra = (era: ProtocolEra, progress = false): McpCall => ({ era, server: era, progress })

/** The load of a server before the first call of an era. */
const PRIMES: Readonly<Record<ProtocolEra, Point>> = {
  legacy: { name: 'mcp legacy', connections: 64, kind: sameEra('legacy') },
  modern: { name: 'mcp modern', connections: 64, kind: sameEra('modern') },
}

const calls = (name: string, connections: number, kind: McpCall): Point => ({
  name,
  connections,
  kind,
  prime: PRIMES[kind.era],
})

const ERAS: readonly ProtocolEra[] = ['legacy', 'modern']

/** Results as tools give them that read files: as JSON, and one as an event. */
export const LONG_RESULTS: readonly Point[] = [
  ...ERAS.flatMap((era) =>
    [100, 1_000, 4_000].map((kb) => calls(`mcp ${era} ${kb} KB`, 4, { ...sameEra(era), bytes: kb * 1_000 })),
  ),
  calls('mcp modern 1000 KB event', 4, { ...sameEra('modern', true), bytes: 1_000_000 }),
]

/** The points with caller and server of one era, which can also be asked of the server itself. */
export const MCP_DIRECT: readonly Point[] = [
  ...ERAS.flatMap((era) => {
    const name = `mcp ${era}`
    const half: Point = {
      ...calls(`${name} half load`, 64, sameEra(era)),
      rate: { halfOf: name, by: 'rate' },
    }
    return [...[1, 16, 64].map((connections) => calls(name, connections, sameEra(era))), half]
  }),
  calls('mcp modern progress', 16, sameEra('modern', true)),
]

/** The points that take a gateway: an answer in the other era, a proof that is checked. */
export const MCP: readonly Point[] = [
  ...MCP_DIRECT,
  ...LONG_RESULTS,
  calls('mcp legacy to modern', 64, { era: 'legacy', server: 'modern', progress: false }),
  ...ERAS.map(
    (era): Point => ({
      ...calls(`mcp ${era} DPoP`, 64, sameEra(era)),
      as: 'proven',
      proof: 'fresh',
    }),
  ),
]

/** The points of this gateway that another one is asked in turn. */
export const PAIRED: readonly Point[] = [
  json(64),
  ALONE,
  BURST,
  ...BODIES,
  calls('mcp legacy', 64, sameEra('legacy')),
  calls('mcp modern', 64, sameEra('modern')),
  { name: 'denied', connections: 64, kind: 'json', as: 'denied', expect: 403 },
  { ...proven(64), prime: proven(64) },
]

/** The points of which is counted what a call takes. */
export const COUNTED: readonly Point[] = PAIRED.filter(
  ({ connections, body }) => connections > 1 && body === undefined,
)
