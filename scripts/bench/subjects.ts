import { cp } from 'node:fs/promises'
import { join } from 'node:path'
import type { Start } from './children.ts'
import type { Ground } from './ground.ts'
import { nginxStart, nginxVersion } from './nginx.ts'
import { BURST, CEILING, HALF_LOAD, LADDER, MANY, PACED, type Point, REFUSED } from './points.ts'

/** A server that is measured, and how it is loaded. */
export interface Subject {
  readonly name: string
  readonly what: string
  readonly points: readonly Point[]
  /** Null: it is the upstream itself, which runs already and speaks plain TCP. */
  readonly start: ((ground: Ground, upstreamPort: number) => Promise<Omit<Start, 'core'>>) | null
}

export const GATEWAY = 'gateway'
export const BARE_PROXY = 'http-proxy-3'
export const DIRECT = 'upstream'
export const CEILING_SERVER = 'node:tls'

const HERE = import.meta.dirname
const node = (name: string, file: string, ...args: readonly string[]): Omit<Start, 'core'> => ({
  name: name.replace(':', '-'),
  command: process.execPath,
  args: [join(HERE, file), ...args],
  ready: 'line',
  // By it a child notices that nobody is left who would end it; the gateway does not look.
  ipc: true,
})

const bare = (name: string, kind: string, what: string, points: readonly Point[]): Subject => ({
  name,
  what,
  points,
  start: ({ directory }, port) =>
    Promise.resolve(node(name, 'bare.ts', kind, directory, `http://127.0.0.1:${port}`)),
})

const rung = (name: string, what: string): Subject => ({
  name,
  what,
  points: LADDER,
  start: async (ground) => ({ ...node(name, 'rung.ts', name), env: await ownData(ground, name) }),
})

/** Everything that is measured, the gateway first: the others are loaded at half of what it carries. */
export function subjects(): readonly Subject[] {
  const proxied = [...LADDER, HALF_LOAD, BURST, PACED]
  return [
    {
      name: GATEWAY,
      what: '+ proxy: the whole gateway',
      points: [...proxied, ...MANY, ...REFUSED],
      start: async (ground) => ({
        ...node(GATEWAY, '../../proxy/main.ts'),
        env: await ownData(ground, GATEWAY),
      }),
    },
    bare(BARE_PROXY, 'http-proxy-3', 'bare http-proxy-3 behind node:https, mTLS, no checks', proxied),
    rung('audit', '+ durable decision and outcome rows'),
    rung('capability', '+ JSON, capability'),
    rung('pin', 'mTLS + pin'),
    bare('node:https', 'https', 'TLS only, static answer', LADDER),
    bare(CEILING_SERVER, 'tls', 'raw node:tls, static bytes: what the generator can reach', CEILING),
    {
      name: 'nginx',
      what: `mTLS reverse proxy (${nginxVersion() ?? 'not installed'})`,
      points: proxied,
      start: (ground, port) => nginxStart(ground.directory, port),
    },
    {
      name: DIRECT,
      what: 'the upstream itself, plain TCP, on the generator’s core',
      points: [HALF_LOAD, BURST, PACED],
      start: null,
    },
  ]
}

/** A data directory of its own: no subject pays for the rows of another. */
async function ownData({ directory, dataDir, env }: Ground, name: string): Promise<Record<string, string>> {
  const own = join(directory, `data-${name}`)
  await cp(dataDir, own, { recursive: true, errorOnExist: true, force: false })
  return { ...env, MCP_PROXY_DATA_DIR: own }
}
