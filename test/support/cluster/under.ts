import { setTimeout as sleep } from 'node:timers/promises'
import type { Fault } from './faults.ts'
import type { Load, Made } from './load.ts'

/** What a fault came to. */
export interface Lived {
  /** The calls that were answered while it lasted, or sent then. */
  readonly meanwhile: readonly Made[]
  /** The longest that one of them took. ms. */
  readonly slowestMs: number
  /** From its end until a call was served, at each of the loads. ms. */
  readonly resumedMs: number
}

const served = ({ status }: Made): boolean => status === 200

/**
 * Lets a fault happen under loads, each of which is served before it and after it. It lasts for `lastsMs`, and until
 * `bitten` calls of each load have been refused where it stops all.
 */
export async function under(
  fault: Fault,
  loads: readonly Load[],
  { lastsMs = 1_000, bitten = 3 } = {},
): Promise<Lived> {
  await Promise.all(loads.map((load) => more(load, served, 10)))
  const begunAt = performance.now()
  await fault.begin()
  if (fault.stopsAll)
    await Promise.all(
      loads.map((load) => more(load, ({ status, sentAt }) => status === 503 && sentAt >= begunAt, bitten)),
    )
  await sleep(Math.max(0, begunAt + lastsMs - performance.now()))
  await fault.end()
  const endedAt = performance.now()
  await Promise.all(loads.map((load) => more(load, (made) => served(made) && made.sentAt >= endedAt, 1)))
  const firsts = loads.map(({ made }) =>
    Math.min(...made.filter((one) => served(one) && one.sentAt >= endedAt).map((one) => one.endedAt)),
  )
  const meanwhile = loads.flatMap(({ made }) =>
    made.filter((one) => one.endedAt >= begunAt && one.sentAt <= endedAt),
  )
  return {
    meanwhile,
    slowestMs: Math.max(0, ...meanwhile.map((one) => one.endedAt - one.sentAt)),
    resumedMs: Math.max(...firsts) - endedAt,
  }
}

function more(load: Load, which: (made: Made) => boolean, count: number): Promise<void> {
  const from = load.made.length
  return load.until((made) => {
    let found = 0
    for (let at = from; at < made.length && found < count; at += 1) if (which(made[at] as Made)) found += 1
    return found >= count
  })
}
