import type { CallCost } from './alone/call-cost.ts'
import type { Es256 } from './alone/es256.ts'
import type { LedgerPoint } from './alone/ledger.ts'
import type { Cost } from './costs.ts'
import type { Pair } from './pairs.ts'
import { type Row, rowOf } from './row.ts'
import type { Round } from './run.ts'
import type { StartUp } from './start-up.ts'
import { BARE_PROXY, CEILING_SERVER, DIRECT, GATEWAY } from './subjects.ts'

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
  readonly nginx: string | null
}

/** Everything a run found. */
export interface Results {
  readonly conditions: Conditions
  readonly rows: readonly Row[]
  readonly startUp: StartUp | null
  readonly ledger: readonly LedgerPoint[]
  /** What the record of a call costs. Null where it was not measured. */
  readonly callCost: CallCost | null
  readonly es256: Es256 | null
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

export interface Target {
  readonly figure: string
  readonly target: string
  readonly reached: string
  /** True where the target was met. Null where it was not measured. */
  readonly met: boolean | null
}

/** The targets that this tool can judge, beside what was reached. */
export function targetsOf({ rows, startUp, ledger, es256 }: Results): readonly Target[] {
  const at = (server: string, point: string, connections?: number): Row | undefined =>
    rowOf(rows, { server, point, ...(connections !== undefined && { connections }) })
  const whole = at(GATEWAY, 'json', 64)
  const bare = at(BARE_PROXY, 'json', 64)
  const half = at(GATEWAY, 'half core')
  const direct = at(DIRECT, 'half core')
  const paced = at(GATEWAY, 'paced')
  const many = at(GATEWAY, 'json', 256)
  const loops = rows.flatMap(({ loopP99Ms }) => (loopP99Ms === null ? [] : [loopP99Ms]))
  const gate = less(at('capability', 'json', 64)?.cpuUs, at('node:https', 'json', 64)?.cpuUs)
  const fastest = ledger.toSorted((a, b) => b.rowsPerSecond - a.rowsPerSecond)[0]
  return [
    atLeast('whole gateway, × bare http-proxy-3, c=64', 0.85, over(whole?.perSecond, bare?.perSecond), 2),
    atMost('gate: CPU µs per request over node:https, c=64', 10, gate),
    atLeast(
      'whole gateway with DPoP, × bare ES256 verification, c=64',
      0.6,
      over(at(GATEWAY, 'DPoP', 64)?.perSecond, es256?.bare.perSecond),
      2,
    ),
    atMost('added p50 at half of the core, µs', 500, less(half?.p50, direct?.p50)),
    atMost('added p99 at half of the core, µs', 3_000, less(half?.p99, direct?.p99)),
    atLeast(
      'streaming, × bare http-proxy-3, c=16',
      0.9,
      over(at(GATEWAY, 'burst')?.perSecond, at(BARE_PROXY, 'burst')?.perSecond),
      2,
    ),
    atMost('added first streamed byte p50, µs', 600, less(paced?.firstP50, at(DIRECT, 'paced')?.firstP50)),
    atLeast('denied by capability, durable row, req/s', 10_000, at(GATEWAY, 'denied')?.perSecond),
    atLeast('refused: wrong type, durable row, req/s', 15_000, at(GATEWAY, 'wrong type')?.perSecond),
    atLeast(
      'refused: oversized proof, durable row, req/s',
      15_000,
      at(GATEWAY, 'oversized proof')?.perSecond,
    ),
    atLeast('refused: wrong proof typ, durable row, req/s', 15_000, at(GATEWAY, 'other typ')?.perSecond),
    atLeast('refused: stale proof, durable row, req/s', 15_000, at(GATEWAY, 'stale iat')?.perSecond),
    atLeast('refused: bad framing, a handshake each, req/s', 15_000, at(GATEWAY, 'bad framing')?.perSecond),
    atLeast('ledger alone, rows/s', 30_000, fastest?.rowsPerSecond),
    atMost('ledger alone at that rate, p99 µs', 25_000, fastest?.p99),
    atMost('event loop p99, worst point, ms', 20, loops.length > 0 ? Math.max(...loops) : undefined),
    atMost('memory under load at 256 connections, MiB', 150, many?.rssMb ?? undefined),
    atMost('ready on an existing data directory, ms', 1_000, startUp?.readyMs),
  ]
}

const less = (a: number | null | undefined, b: number | null | undefined): number | undefined =>
  typeof a === 'number' && typeof b === 'number' ? a - b : undefined

const over = (a: number | undefined, b: number | undefined): number | undefined =>
  a !== undefined && b ? a / b : undefined

function atLeast(figure: string, least: number, got: number | undefined, digits = 0): Target {
  return judged(figure, `≥ ${number(least, digits)}`, got, digits, (value) => value >= least)
}

function atMost(figure: string, most: number, got: number | undefined): Target {
  return judged(figure, `≤ ${number(most)}`, got, 0, (value) => value <= most)
}

function judged(
  figure: string,
  target: string,
  got: number | undefined,
  digits: number,
  holds: (value: number) => boolean,
): Target {
  if (got === undefined) return { figure, target, reached: 'not measured', met: null }
  return { figure, target, reached: number(got, digits), met: holds(got) }
}

/** With thousands separated. */
export const number = (value: number, digits = 0): string =>
  value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits })

/** Returns the generator's throughput against the ceiling server; points near it measure the generator. */
export const ceilingOf = (rows: readonly Row[]): number | undefined =>
  rowOf(rows, { server: CEILING_SERVER, point: 'json' })?.perSecond
