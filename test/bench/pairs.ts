import { nameOf } from './chosen.ts'
import type { Child } from './ground/children.ts'
import { gatewayStart } from './ground/gateway.ts'
import type { Ground } from './ground/ground.ts'
import type { Measured } from './job.ts'
import { type Measure, measuring } from './measuring.ts'
import { medianOf } from './median.ts'
import type { Point } from './points.ts'
import type { Bench } from './workbench.ts'

/** One point of two gateways that were asked in turn. */
export interface Pair {
  readonly point: string
  readonly connections: number
  /** Of this checkout. */
  readonly own: Measured
  /** Of the other one. */
  readonly other: Measured
}

/** The order in which they are asked: what drifts with time falls on both alike. */
const TURNS = ['own', 'other', 'other', 'own'] as const

/**
 * Measures points of two gateways that run at the same time on the same core, of which one is asked and the other
 * one idle. `rounds` times four turns; each figure is the median of its own.
 */
export async function measurePairs(
  bench: Bench,
  other: Ground,
  points: readonly Point[],
  prime: Point,
): Promise<readonly Pair[]> {
  if (points.length === 0) return []
  const [own, theirs] = [await open(bench, bench.ground, prime), await open(bench, other, prime)]
  const pairs: Pair[] = []
  for (const point of points) {
    const found: Record<(typeof TURNS)[number], Measured[]> = { own: [], other: [] }
    for (let round = 0; round < bench.plan.rounds; round += 1) {
      for (const turn of TURNS) {
        const { measure } = turn === 'own' ? own : theirs
        found[turn].push(await measure(point))
      }
    }
    const { name, connections } = point
    const pair = { point: name, connections, own: median(found.own), other: median(found.other) }
    const ratio = (pair.own.cpuUs ?? Number.NaN) / (pair.other.cpuUs ?? Number.NaN)
    bench.say(`${nameOf('against', point)}: ${ratio.toFixed(2)} of the other's CPU`)
    pairs.push(pair)
  }
  await own.child.stop()
  await theirs.child.stop()
  return pairs
}

interface Opened {
  readonly child: Child
  readonly measure: Measure
}

async function open(bench: Bench, ground: Ground, prime: Point): Promise<Opened> {
  const child = await bench.children.start({
    ...(await gatewayStart(ground, ground === bench.ground ? 'pair-own' : 'pair-other')),
    core: bench.cores.measured,
  })
  return { child, measure: measuring(bench, { child, ground, tls: true, prime }) }
}

/** Takes the median of each figure by itself. */
function median(found: readonly Measured[]): Measured {
  const of = (figure: (measured: Measured) => number): number => medianOf(found.map(figure))
  const known = (figure: (measured: Measured) => number | null): number | null => {
    const values = found.map(figure).filter((value) => value !== null)
    return values.length === 0 ? null : medianOf(values)
  }
  return {
    requests: of(({ requests }) => requests),
    errors: Math.max(...found.map(({ errors }) => errors)),
    perSecond: of(({ perSecond }) => perSecond),
    p50: of(({ p50 }) => p50),
    p99: of(({ p99 }) => p99),
    firstP50: of(({ firstP50 }) => firstP50),
    firstP99: of(({ firstP99 }) => firstP99),
    cpuUs: known(({ cpuUs }) => cpuUs),
    rssMb: known(({ rssMb }) => rssMb),
    generatorBusy: of(({ generatorBusy }) => generatorBusy),
  }
}
