import type { Measure } from './measuring.ts'
import type { Point } from './points.ts'
import type { Row } from './row.ts'
import { isGateway } from './subjects.ts'

/** The share of its core that the gateway is to use, and how near is near enough. */
const HALF = 0.5
const NEAR = 0.03
const TRIES = 5
const TRY = { warmupS: 0.5, seconds: 1.5 }

/**
 * Resolves with the rate of a point that depends on others, in requests per second; undefined for one that does
 * not, 0 where what it depends on was not measured. `rows`: what was measured so far.
 */
export async function rateOf(
  point: Point,
  server: string,
  rows: readonly Row[],
  measure: Measure,
): Promise<number | undefined> {
  if (typeof point.rate !== 'object') return undefined
  const { halfOf, by } = point.rate
  const full = rows.find((row) => isGateway(row.server) && row.point === halfOf && row.connections === 64)
  if (!full) return 0
  if (by === 'rate') return Math.round(full.perSecond / 2)
  if (isGateway(server)) return halfCore(point, full.perSecond, measure)
  const half = rows.find((row) => isGateway(row.server) && row.point === point.name)
  return Math.round(half?.perSecond ?? 0)
}

/** Looks for the rate that keeps half of the core busy. `full`: the throughput with all of it. */
async function halfCore(point: Point, full: number, measure: Measure): Promise<number> {
  let rate = full / 3
  for (let left = TRIES; left > 0; left -= 1) {
    const { cpuUs, perSecond } = await measure(point, { ...TRY, rate: Math.round(rate) })
    const share = ((cpuUs ?? 0) * perSecond) / 1_000_000
    // Without /proc nobody knows: a third of the throughput is then near half of the core.
    if (share === 0 || Math.abs(share - HALF) < NEAR) break
    rate = Math.min(full, (perSecond * HALF) / share)
  }
  return Math.round(rate)
}
