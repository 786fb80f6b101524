import { join, resolve } from 'node:path'
import { isChosen, nameOf } from './chosen.ts'
import { type Cost, measureCost } from './costs.ts'
import { layGroundOf, versionOf } from './ground/gateway.ts'
import type { Ground } from './ground/ground.ts'
import { measurePairs, type Pair } from './pairs.ts'
import { COUNTED, PAIRED, type Point, PRIME } from './points.ts'
import { GATEWAY } from './subjects.ts'
import type { Bench } from './workbench.ts'

/** What was found of this gateway, and of one of another checkout beside it. */
export interface Copies {
  readonly pairs: readonly Pair[]
  readonly costs: readonly Cost[]
  /** The version of the other one. Null: there is none. */
  readonly other: string | null
}

/** Measures this gateway in turn with that of the checkout `against`, and counts what a call of each takes. */
export async function measureCopies(bench: Bench, against: string | undefined): Promise<Copies> {
  const chosen = (group: string, points: readonly Point[]): readonly Point[] =>
    points.filter((point) => isChosen(bench.plan, nameOf(group, point)))
  const paired = against === undefined ? [] : chosen('against', PAIRED)
  const counted = chosen('cost', COUNTED)
  if (paired.length === 0 && counted.length === 0) return { pairs: [], costs: [], other: null }
  const copy = against === undefined ? null : await layOther(bench, resolve(against), 'other')
  const pairs = copy ? await measurePairs(bench, copy.ground, paired, PRIME) : []
  const gateways = [{ server: GATEWAY, ground: bench.ground }, ...(copy ? [copy] : [])]
  const costs: Cost[] = []
  for (const point of counted) {
    for (const gateway of gateways) costs.push(await measureCost(bench, gateway, point, PRIME))
  }
  return { pairs, costs, other: copy?.server ?? null }
}

/** Lays the ground of the checkout `root`'s gateway in a directory `name`. */
export async function layOther(
  { ground, upstream, children, say }: Bench,
  root: string,
  name: string,
): Promise<{ server: string; ground: Ground }> {
  const server = await versionOf(root)
  const place = { directory: join(ground.directory, name), upstreamPort: upstream.port, children }
  const laid = await layGroundOf(root, place)
  say(`beside it: ${server} of ${root}`)
  return { server, ground: laid }
}
