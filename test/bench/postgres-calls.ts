import { setTimeout as pause } from 'node:timers/promises'
import { Client } from 'pg'
import { freePort } from '../../scripts/free-port.ts'
import { type CountedWay, countedWay } from '../support/db/postgres/turns.ts'
import { isChosen } from './chosen.ts'
import type { Child } from './ground/children.ts'
import { gatewayStart } from './ground/gateway.ts'
import { type Ground, layGround } from './ground/ground.ts'
import { cpuUsOf, cpuUsOfServer } from './ground/proc.ts'
import { measuring } from './measuring.ts'
import { type Point, PRIME } from './points.ts'
import type { Bench } from './workbench.ts'

/** Whole calls through gateways that share one PostgreSQL database and one port. Times are µs. */
export interface PostgresCalls {
  readonly gateways: number
  /** The sum of all gateways. */
  readonly connections: number
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
  readonly errors: number
  /** The processor time of a call, in all gateways, and in all processes of the server. Null: it is elsewhere. */
  readonly gatewaysUs: number | null
  readonly serverUs: number | null
  readonly walBytes: number
  /** The figures of a call as they were counted on the way, in a run of their own. Null: there is no socket. */
  readonly statements: number | null
  readonly roundTrips: number | null
  readonly callsPerCommit: number | null
}

/** The statements of gateways that nobody asks anything. */
export interface PostgresIdle {
  readonly gateways: number
  /** Statements per second: of the one that asks most, and of all. */
  readonly most: number
  readonly all: number
}

export interface PostgresWhole {
  readonly calls: readonly PostgresCalls[]
  readonly idle: readonly PostgresIdle[]
}

const GATEWAYS = [1, 2, 4]
const CONNECTIONS = [1, 16, 64]
const PASSPHRASE = 'the passphrase of all replicas'
/** The time after a load in which its last outcomes are written. ms. */
const SETTLE_MS = 500
/** The time that idle gateways are listened to, once they lead what they lead: each task has its turn. ms. */
const [QUIET_MS, IDLE_MS] = [15_000, 10_000]
/** The time that is counted on the way. s. */
const COUNTED_S = 1

/** Measures whole calls on the database that the plan names; nothing where it names none. */
export async function measurePostgresCalls(bench: Bench): Promise<PostgresWhole> {
  const { plan, ground: base, upstream, say } = bench
  const calls: PostgresCalls[] = []
  const idle: PostgresIdle[] = []
  if (plan.postgres === undefined || !isChosen(plan, 'calls-postgres')) return { calls, idle }
  const shared = { MCP_PROXY_DATABASE_URL: plan.postgres, MCP_PROXY_KEY_PASSPHRASE: PASSPHRASE }
  const ground = await layGround(`${base.directory}/on-postgres`, upstream.port, shared)
  const client = new Client(plan.postgres)
  await client.connect()
  const server = await openServer(client)
  for (const count of GATEWAYS) {
    const measured = await withGateways({ ...bench, ground }, count, null, (fleet) =>
      pointsOf(bench, fleet, server),
    )
    const counted = await countedOn(bench, ground, count, server)
    for (const [n, point] of measured.entries()) {
      const found = { ...point, ...(counted?.points[n] ?? NOT_COUNTED) }
      calls.push(found)
      say(
        `calls-postgres/${count} gateways c=${point.connections}: ${Math.round(point.perSecond)}/s, ` +
          `server ${Math.round(point.serverUs ?? 0)} µs, WAL ${Math.round(point.walBytes)} B a call`,
      )
    }
    if (counted) idle.push(counted.idle)
  }
  await client.end()
  return { calls, idle }
}

interface Fleet {
  readonly gateways: readonly Child[]
  readonly ground: Ground
  readonly port: number
}

let fleets = 0

/** Starts gateways on one port; each gets its own way to the database, if there are any. */
async function withGateways<Made>(
  { ground, children, cores }: Bench,
  count: number,
  ways: readonly CountedWay[] | null,
  work: (fleet: Fleet) => Promise<Made>,
): Promise<Made> {
  const [port, adminPort] = [await freePort(), await freePort()]
  fleets += 1
  const gateways: Child[] = []
  for (let n = 0; n < count; n += 1) {
    const start = await gatewayStart(ground, `postgres-${fleets}-${n}`)
    const env = {
      ...start.env,
      MCP_PROXY_LISTEN: `127.0.0.1:${port}`,
      MCP_PROXY_ADMIN_LISTEN: `127.0.0.1:${adminPort}`,
      MCP_PROXY_REUSE_PORT: 'true',
      ...(ways && { MCP_PROXY_DATABASE_URL: ways[n]?.url ?? '' }),
    }
    gateways.push(await children.start({ ...start, env, core: cores.measured }))
  }
  try {
    return await work({ gateways, ground, port })
  } finally {
    await Promise.all(gateways.map((gateway) => gateway.stop()))
  }
}

const json = (connections: number): Point => ({ ...PRIME, connections })

type Uncounted = Omit<PostgresCalls, keyof typeof NOT_COUNTED>

async function pointsOf(bench: Bench, fleet: Fleet, server: DatabaseServer): Promise<readonly Uncounted[]> {
  const { gateways, ground, port } = fleet
  const measure = measuring(bench, {
    child: { port, pid: gateways[0]?.pid ?? 0 },
    ground,
    tls: true,
    prime: PRIME,
  })
  const found: Uncounted[] = []
  for (const connections of CONNECTIONS) {
    await measure({ ...json(connections), prime: PRIME }, { warmupS: 0, seconds: 1 })
    await pause(SETTLE_MS)
    const before = await server.look(gateways)
    const { perSecond, p50, p99, errors } = await measure(json(connections), { warmupS: 0 })
    await pause(SETTLE_MS)
    const after = await server.look(gateways)
    const calls = (after.rows - before.rows) / 2
    const each = (figure: 'gatewaysUs' | 'serverUs') =>
      before[figure] === null || after[figure] === null ? null : (after[figure] - before[figure]) / calls
    found.push({
      ...{ gateways: gateways.length, connections, perSecond, p50, p99, errors },
      ...{ gatewaysUs: each('gatewaysUs'), serverUs: each('serverUs') },
      walBytes: (after.wal - before.wal) / calls,
    })
  }
  return found
}

const NOT_COUNTED = { statements: null, roundTrips: null, callsPerCommit: null }

/** The same load again, on ways that count; and then none. Null where the server has no socket here. */
async function countedOn(bench: Bench, ground: Ground, count: number, server: DatabaseServer) {
  const url = bench.plan.postgres ?? ''
  if (!URL.parse(url)?.searchParams.get('host')?.startsWith('/')) return null
  const ends: (() => unknown)[] = []
  const scope = { teardown: (end: () => unknown) => void ends.push(end) }
  const ways = await Promise.all(Array.from({ length: count }, () => countedWay(scope, url)))
  const statements = () => ways.map((way) => way.statements().length)
  const sum = (all: readonly number[]): number => all.reduce((one, other) => one + other, 0)
  const state = async (gateways: readonly Child[]) => ({
    rows: (await server.look(gateways)).rows,
    statements: sum(statements()),
    turns: sum(ways.map((way) => way.turns())),
    commits: ways.flatMap((way) => way.statements()).filter((text) => text === 'commit').length,
  })
  try {
    return await withGateways({ ...bench, ground }, count, ways, async ({ gateways, port }) => {
      const child = { port, pid: gateways[0]?.pid ?? 0 }
      const measure = measuring(bench, { child, ground, tls: true, prime: PRIME })
      const points = []
      for (const connections of CONNECTIONS) {
        const before = await state(gateways)
        await measure({ ...json(connections), unprimed: true }, { warmupS: 0, seconds: COUNTED_S })
        await pause(SETTLE_MS)
        const after = await state(gateways)
        const calls = (after.rows - before.rows) / 2
        points.push({
          statements: (after.statements - before.statements) / calls,
          roundTrips: (after.turns - before.turns) / calls,
          callsPerCommit: calls / (after.commits - before.commits),
        })
      }
      await pause(QUIET_MS)
      const before = statements()
      await pause(IDLE_MS)
      const asked = statements().map((now, n) => ((now - (before[n] ?? 0)) * 1_000) / IDLE_MS)
      return { points, idle: { gateways: count, most: Math.max(...asked), all: sum(asked) } }
    })
  } finally {
    for (const end of ends) await end()
  }
}

interface DatabaseState {
  readonly rows: number
  /** Bytes. */
  readonly wal: number
  readonly gatewaysUs: number | null
  readonly serverUs: number | null
}

interface DatabaseServer {
  readonly look: (gateways: readonly Child[]) => Promise<DatabaseState>
}

async function openServer(client: Client): Promise<DatabaseServer> {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
  const backend = rows[0]?.pid ?? 0
  return {
    look: async (gateways) => {
      const found = await client.query<{ rows: string; wal: string }>(LOOK)
      const used = gateways.map(({ pid }) => cpuUsOf(pid))
      return {
        rows: Number(found.rows[0]?.rows),
        wal: Number(found.rows[0]?.wal),
        gatewaysUs: used.includes(null) ? null : used.reduce<number>((sum, us) => sum + (us ?? 0), 0),
        serverUs: cpuUsOfServer(backend),
      }
    },
  }
}

const LOOK = `select pg_current_wal_insert_lsn() - '0/0'::pg_lsn as wal, (select coalesce(sum(
  (select seq from audit_rows where audit_rows.stream = audit_streams.stream order by seq desc limit 1)), 0)
  from audit_streams) as rows`
