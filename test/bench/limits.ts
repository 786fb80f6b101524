import { join } from 'node:path'
import type { LimitsPoint } from './alone/limits.ts'
import { measureLimitsAlone } from './alone/measure.ts'
import { isChosen } from './chosen.ts'
import type { Bench } from './workbench.ts'

/** The cost of limits, on each engine. */
export interface LimitsFound extends LimitsPoint {
  readonly engine: 'sqlite' | 'postgres'
  /** Processor time of the refusal of a call whose limit is known to be used up: no database is asked. µs. */
  readonly knownFullUs: number
}

/** Measures what limits take of a call, on SQLite, and on the database that the plan names. */
export async function measureLimits(bench: Bench): Promise<readonly LimitsFound[]> {
  const { plan, ground, say } = bench
  if (!isChosen(plan, 'limits')) return []
  const urls = { sqlite: `sqlite:${join(ground.directory, 'limits.db')}`, postgres: plan.postgres }
  const found: LimitsFound[] = []
  for (const engine of ['sqlite', 'postgres'] as const) {
    const url = urls[engine]
    if (url === undefined) continue
    const { points, knownFullUs } = await measureLimitsAlone(bench, url)
    found.push(...points.map((point) => ({ engine, ...point, knownFullUs })))
    say(
      `limits/${engine}: ${points.map(({ limits, cpuUs }) => `${limits}: ${Math.round(cpuUs)} µs`).join(', ')}`,
    )
  }
  return found
}
