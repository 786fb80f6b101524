import { join } from 'node:path'
import type { Start } from './ground/children.ts'
import { gatewayStart, node, ownData } from './ground/gateway.ts'
import { type Ground, telemetryFiles, translatingFiles } from './ground/ground.ts'
import type { Peer } from './ground/peers/peer.ts'
import { PEERS } from './ground/peers/peers.ts'
import {
  ALONE,
  BODIES,
  BURST,
  CEILING,
  HALF_CORE,
  idling,
  JUNK_PROOFS,
  json,
  LADDER,
  MANY,
  MCP,
  MCP_DIRECT,
  PACED,
  PICTURES,
  type Point,
  PRIME,
  PROVEN,
  PROVEN_WITH_TOKEN,
  proven,
  REFUSED,
  TRANSLATED,
} from './points.ts'

/** A server that is measured, and how it is loaded. */
export interface Subject {
  readonly name: string
  readonly what: string
  readonly points: readonly Point[]
  /** Its load before the first point that names no other, unmeasured. */
  readonly prime: Point
  /** Prepares its start. Null: it is the upstream itself, which runs already. */
  readonly start: ((ground: Ground, upstreamPort: number) => Promise<Omit<Start, 'core'>>) | null
  /** The server of others that it is. */
  readonly peer?: Peer
  /** False: plain TCP. */
  readonly tls: boolean
}

export const GATEWAY = 'gateway'
/** The gateway with `egress_dpop_mode: required`. */
export const GATEWAY_REQUIRED = 'gateway-required'
/** The gateway, asked to call tools. */
export const GATEWAY_MCP = 'gateway-mcp'
/** The gateway with many connections that hardly ask. */
export const GATEWAY_IDLE = 'gateway-idle'
/** The gateway, whose providers speak one API each. */
export const GATEWAY_TRANSLATING = 'gateway-translating'
/** The gateway that exports all signals, and the same that exports none, in turn. */
export const GATEWAY_TELEMETRY = 'gateway-telemetry'
export const GATEWAY_NO_TELEMETRY = 'gateway-no-telemetry'
/** Tells the names of the whole gateway. */
export const isGateway = (name: string): boolean => name === GATEWAY || name.startsWith(`${GATEWAY}-`)
/** The rung with a proof on each request. */
export const DPOP_RUNG = 'dpop'
export const BARE_PROXY = 'http-proxy-3'
export const DIRECT = 'upstream'
export const CEILING_SERVER = 'node:tls'

const BARE = join(import.meta.dirname, 'ground/bare.ts')
const RUNG = join(import.meta.dirname, 'rung.ts')

const bare = (name: string, kind: string, what: string, points: readonly Point[]): Subject => ({
  name,
  what,
  points,
  tls: true,
  prime: PRIME,
  start: ({ directory }, port) =>
    Promise.resolve(node(name, BARE, kind, directory, `http://127.0.0.1:${port}`)),
})

const rung = (name: string, what: string): Subject => ({
  name,
  what,
  points: LADDER,
  tls: true,
  prime: PRIME,
  start: async (ground) => ({ ...node(name, RUNG, name), env: await ownData(ground, name) }),
})

/** The rung `audit` again, asked with proofs. */
const provenRung = (): Subject => ({
  name: DPOP_RUNG,
  what: '+ a fresh DPoP proof, its jti claimed',
  points: PROVEN,
  tls: true,
  prime: proven(64),
  start: async (ground) => ({
    ...node(DPOP_RUNG, RUNG, 'audit'),
    env: await ownData(ground, DPOP_RUNG),
  }),
})

/** What a peer is asked: as much of the ladder as it serves. */
const PEER_POINTS: Readonly<Record<Peer['serves'], readonly Point[]>> = {
  proxy: [...LADDER, HALF_CORE, BURST, PACED],
  llm: [...LADDER, BURST],
  // More at once than it takes would wait in it for the points that follow.
  mcp: MCP_DIRECT.filter(({ name, connections }) => name === 'mcp legacy' && connections < 64).map(
    (point) => ({ ...point, prime: { ...point, connections: 1 } }),
  ),
}

const peer = (found: Peer): Subject => ({
  name: found.name,
  what: found.what,
  points: PEER_POINTS[found.serves],
  prime: PRIME,
  tls: found.serves === 'proxy',
  start: null,
  peer: found,
})

const gateway = (
  name: string,
  what: string,
  mode: string,
  prime: Point,
  points: readonly Point[],
): Subject => ({
  name,
  what,
  points,
  prime,
  tls: true,
  start: async (ground) => {
    const start = await gatewayStart(ground, name)
    return { ...start, env: { ...start.env, MCP_PROXY_EGRESS_DPOP_MODE: mode } }
  },
})

/**
 * Lists everything that is measured, the gateway first: the others are loaded at half of what it carries. `idle`: a
 * number of connections that hardly ask; 0 for none.
 */
export function subjects(idle = 0): readonly Subject[] {
  const proxied = [...LADDER, HALF_CORE, BURST, ...BODIES, PACED]
  return [
    gateway(GATEWAY, '+ proxy: the whole gateway', 'optional', PRIME, [
      ...proxied,
      ...MANY,
      ...REFUSED,
      ...PROVEN,
      PROVEN_WITH_TOKEN,
      ...JUNK_PROOFS,
      // Last: what it takes of the system is not given back at once.
      PICTURES,
    ]),
    gateway(GATEWAY_REQUIRED, 'the same, which demands a proof', 'required', proven(64), [
      proven(64),
      PROVEN_WITH_TOKEN,
    ]),
    gateway(GATEWAY_MCP, 'the same, in front of MCP servers', 'optional', PRIME, MCP),
    gateway(GATEWAY_NO_TELEMETRY, 'the same, for the next', 'optional', PRIME, [json(64)]),
    {
      name: GATEWAY_TELEMETRY,
      what: 'the same, exporting traces, metrics and logs',
      ...{ points: [json(64)], prime: PRIME, tls: true },
      start: async (ground, port) => {
        const start = await gatewayStart(ground, GATEWAY_TELEMETRY)
        return { ...start, env: { ...start.env, MCP_PROXY_PLUGINS_DIR: await telemetryFiles(ground, port) } }
      },
    },
    {
      name: GATEWAY_TRANSLATING,
      what: 'the same, between two APIs',
      ...{ points: TRANSLATED, prime: PRIME, tls: true },
      start: async (ground, port) => {
        const start = await gatewayStart(ground, GATEWAY_TRANSLATING)
        return {
          ...start,
          env: { ...start.env, MCP_PROXY_PLUGINS_DIR: await translatingFiles(ground, port) },
        }
      },
    },
    gateway(GATEWAY_IDLE, 'the same, idle', 'optional', PRIME, idle > 0 ? [idling(idle)] : []),
    bare(BARE_PROXY, 'http-proxy-3', 'bare http-proxy-3 behind node:https, mTLS, no checks', proxied),
    provenRung(),
    rung('audit', '+ durable decision and outcome rows'),
    rung('capability', '+ JSON, capability'),
    rung('pin', 'mTLS + pin'),
    bare('node:https', 'https', 'TLS only, static answer', LADDER),
    bare(CEILING_SERVER, 'tls', 'raw node:tls, static bytes: what the generator can reach', CEILING),
    ...PEERS.map(peer),
    {
      name: DIRECT,
      what: 'the upstream itself, plain TCP, on the generator’s core',
      points: [ALONE, HALF_CORE, BURST, PACED, ...MCP_DIRECT],
      prime: PRIME,
      start: null,
      tls: false,
    },
  ]
}
