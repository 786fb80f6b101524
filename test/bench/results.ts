import type { Es256 } from './alone/es256.ts'
import type { LedgerAlone, LedgerPoint } from './alone/ledger.ts'
import type { PostgresRoom } from './alone/room-postgres.ts'
import type { ToldEvents } from './alone/told-events.ts'
import type { Cost } from './costs.ts'
import type { Fault } from './fault.ts'
import type { DashboardPoint } from './filled/dashboard.ts'
import type { ProofsPoint } from './filled/proofs.ts'
import type { Found } from './ground/peers/peers.ts'
import type { LimitsFound } from './limits.ts'
import type { Pair } from './pairs.ts'
import type { PostgresPoint } from './postgres.ts'
import type { PostgresCalls, PostgresIdle } from './postgres-calls.ts'
import type { RehearsalPoint } from './rehearsals.ts'
import { type Row, rowOf } from './row.ts'
import type { Round } from './run.ts'
import type { StartUp } from './start-up.ts'
import type { StreamsPoint } from './streams/measure.ts'
import { CEILING_SERVER, GATEWAY } from './subjects.ts'

/** The place and the time of a run. */
export interface Conditions {
  readonly at: string
  readonly node: string
  readonly processor: string
  readonly cores: number
  readonly pinned: boolean
  readonly warmupS: number
  readonly seconds: number
  readonly rounds: number
  /** Load average of the last minute when the run began: near 0 on a quiet machine. */
  readonly loadBefore: number
  readonly peers: readonly Found[]
}

/** Everything a run found. */
export interface Results {
  readonly conditions: Conditions
  readonly rows: readonly Row[]
  readonly startUp: StartUp | null
  /** With as many rows as `--start-rows` says. */
  readonly fullStart: StartUp | null
  readonly ledger: readonly LedgerPoint[]
  /** On PostgreSQL. */
  readonly postgres: readonly PostgresPoint[]
  /** The cost of a call for the server. Absent, or null: it was not measured. */
  readonly postgresRoom?: PostgresRoom | null
  /** Whole calls there, and what gateways ask that have nothing to do. */
  readonly postgresCalls: readonly PostgresCalls[]
  readonly postgresIdle: readonly PostgresIdle[]
  /** Over a month of calls, on each engine that was asked for. */
  readonly rehearsals: readonly RehearsalPoint[]
  /** On each engine that was asked for. */
  readonly dashboards: readonly DashboardPoint[]
  /** Null where it was not measured. */
  readonly proofs: ProofsPoint | null
  /** Many streams at once, whose events come one by one. */
  readonly streams: readonly StreamsPoint[]
  /** What the record of a call costs. Null where it was not measured. */
  readonly callCost: LedgerAlone['call'] | null
  /** The costs of limits, by engine and number. */
  readonly limits: readonly LimitsFound[]
  /** The translation of streams alone, by direction. */
  readonly toldEvents: readonly ToldEvents[]
  readonly es256: Es256 | null
  readonly fault: Fault | null
  /** Beside the gateway of another checkout. */
  readonly pairs: readonly Pair[]
  /** Of this gateway, and of the other one where there is one. */
  readonly costs: readonly Cost[]
  /** The version of the other one. Null: there is none. */
  readonly other: string | null
}

/**
 * Takes of each point the round with the median throughput: a noisy neighbour spoils a round, not the figure.
 */
export function medianRows(rounds: readonly Round[]): readonly Row[] {
  const byPoint = Map.groupBy(
    rounds.flatMap(({ rows }) => rows),
    ({ server, point, connections }) => `${server}/${point}/${connections}`,
  )
  return [...byPoint.values()].flatMap((rows) => middle(rows.sort((a, b) => a.perSecond - b.perSecond)))
}

/** Takes the one in the middle of the rounds that measured it. */
export function medianEs256(rounds: readonly Round[]): Es256 | null {
  const found = rounds.flatMap(({ es256 }) => (es256 ? [es256] : []))
  const [median = null] = middle(found.sort((a, b) => a.bare.perSecond - b.bare.perSecond))
  return median
}

const middle = <T>(sorted: readonly T[]): readonly T[] =>
  sorted.slice(sorted.length >> 1, (sorted.length >> 1) + 1)

/** The CPU that a point may take of another checkout's: 10 % is more than what differs by chance. */
const MAX_OF_OTHER = 1.1

/** Names the points at which this gateway takes more CPU than another checkout's, and how much. */
export function worsePoints({ pairs, streams }: Pick<Results, 'pairs' | 'streams'>): readonly string[] {
  const other = streams.filter(({ server }) => server === 'other')
  const compared = [
    ...pairs.map(({ point, connections, own, other: theirs }) => ({
      ...{ name: `${point} c=${connections}`, own: own.cpuUs, other: theirs.cpuUs },
    })),
    ...other.map(({ streams: count, cpuUs }) => ({
      ...{ name: `streams c=${count}`, other: cpuUs },
      own: streams.find((one) => one.server === GATEWAY && one.streams === count)?.cpuUs ?? null,
    })),
  ]
  return compared.flatMap(({ name, own, other: theirs }) =>
    own && theirs && own / theirs > MAX_OF_OTHER
      ? [`${name}: ${(own / theirs).toFixed(2)} of the other's CPU`]
      : [],
  )
}

/** With thousands separated. */
export const number = (value: number, digits = 0): string =>
  value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits })

/** Returns the generator's throughput against the ceiling server; points near it measure the generator. */
export const ceilingOf = (rows: readonly Row[]): number | undefined =>
  rowOf(rows, { server: CEILING_SERVER, point: 'json' })?.perSecond
