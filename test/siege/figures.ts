import { once } from 'node:events'
import { rssMbOf } from '../bench/ground/proc.ts'
import type { Figures } from './callers/tally.ts'
import type { Told, Wish } from './callers.ts'
import { rowsOf } from './ledger.ts'
import type { Stage } from './stage.ts'

/** What was seen in one interval. */
export interface Sample {
  /** The end of the interval. Seconds since the beginning. */
  readonly at: number
  readonly attacks: readonly string[]
  readonly honest: Figures
  /** The delays of the gateway's event loop, as it says itself. ms. Null where it did not say. */
  readonly loop: { readonly p99: number; readonly longest: number } | null
  readonly rssMb: number | null
  readonly rows: number
}

/** The time that callers may take to end their last calls. ms. */
const LAST_CALLS_MS = 30_000

/** Asks the callers. */
export async function askCallers(
  { callers }: Stage,
  kind: Exclude<Wish['kind'], 'begin'>,
): Promise<Told & { kind: 'figures' }> {
  const answered = once(callers.process, 'message', { signal: AbortSignal.timeout(LAST_CALLS_MS) })
  callers.process.send({ kind } satisfies Wish)
  // Only test/siege/callers.ts speaks on this channel, and said that it is ready long ago.
  const [told] = (await answered) as [Told & { kind: 'figures' }]
  return told
}

/** Takes one sample. Each starts the figures anew. */
export async function sample(stage: Stage, at: number, attacks: readonly string[]): Promise<Sample> {
  const [{ figures }, loop] = await Promise.all([askCallers(stage, 'figures'), loopOf(stage)])
  return {
    at,
    attacks,
    honest: figures,
    loop,
    rssMb: rssMbOf(stage.gateway.pid),
    rows: rowsOf(stage.databaseFile),
  }
}

async function loopOf({ call }: Stage): Promise<Sample['loop']> {
  const { body } = await call('GET', '/metrics')
  const figure = (name: string): number =>
    Number(new RegExp(`^nodejs_eventloop_lag_${name}_seconds (\\S+)$`, 'm').exec(String(body))?.[1]) * 1_000
  const [p99, longest] = [figure('p99'), figure('max')]
  return Number.isFinite(p99) && Number.isFinite(longest) ? { p99, longest } : null
}
