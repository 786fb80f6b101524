import { openDatabase } from '../../db/engine.ts'
import type { PostgresKind, PostgresPart } from './alone/ledger-postgres.ts'
import { measurePostgresPart, measurePostgresRoom } from './alone/measure.ts'
import type { PostgresRoom } from './alone/room-postgres.ts'
import { isChosen } from './chosen.ts'
import type { Bench } from './workbench.ts'

/** The ledger on PostgreSQL, written by some processes at once. */
export interface PostgresPoint {
  readonly kind: PostgresKind
  readonly processes: number
  /** Of each process. */
  readonly committers: number
  /** Of all processes. */
  readonly perSecond: number
  /** Of the slowest process. µs. */
  readonly p50: number
  readonly p99: number
}

const POINTS: readonly Pick<PostgresPoint, 'kind' | 'processes' | 'committers'>[] = [
  ...[1, 16, 64, 256].map((committers) => ({ kind: 'row', processes: 1, committers }) as const),
  ...[1, 16, 64, 256].map((committers) => ({ kind: 'decision', processes: 1, committers }) as const),
  ...[2, 4].map((processes) => ({ kind: 'decision', processes, committers: 64 }) as const),
]

/** The time in which every process is under way. ms. */
const START_MS = 4_000

/** Measures what a call takes of the server of that database; null where the plan names none. */
export async function measureServerRoom(bench: Bench): Promise<PostgresRoom | null> {
  const { plan, say } = bench
  if (plan.postgres === undefined || !isChosen(plan, 'ledger-postgres')) return null
  const room = await measurePostgresRoom(bench, plan.postgres)
  say(`ledger-postgres/room: ${Math.round(room.stored)} bytes a call`)
  return room
}

/** Measures the ledger on the database that the plan names; nothing where it names none. */
export async function measurePostgres(bench: Bench): Promise<readonly PostgresPoint[]> {
  const { plan, say } = bench
  const url = plan.postgres
  if (url === undefined || !isChosen(plan, 'ledger-postgres')) return []
  await (await openDatabase(url)).close()
  const found: PostgresPoint[] = []
  for (const point of POINTS) {
    const { kind, processes, committers } = point
    const at = Date.now() + START_MS
    const parts = await Promise.all(
      Array.from({ length: processes }, (_, process) =>
        measurePostgresPart(bench, [url, at, plan.seconds, committers, kind].map(String), process),
      ),
    )
    const worst = (of: (part: PostgresPart) => number): number => Math.max(...parts.map(of))
    const perSecond = parts.reduce((sum, part) => sum + part.perSecond, 0)
    found.push({ ...point, perSecond, p50: worst(({ p50 }) => p50), p99: worst(({ p99 }) => p99) })
    say(`ledger-postgres/${kind} ${processes} × c=${committers}: ${Math.round(perSecond)}/s`)
  }
  return found
}
