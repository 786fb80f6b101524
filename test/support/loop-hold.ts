import { type PerformanceEntry, PerformanceObserver } from 'node:perf_hooks'

/** What a piece of work did to the loop while it was under way. */
export interface Held<T> {
  /** The work's own result. */
  readonly value: T
  /** The longest single turn of the loop. ms. */
  readonly worstMs: number
  /**
   * The longest without the pauses of the garbage collector: they come when they come, and are long where its
   * helpers find the machine busy. ms.
   */
  readonly ownMs: number
}

interface Turn {
  readonly from: number
  readonly to: number
  readonly held: number
}

/**
 * Measures how long the loop of this thread was held at a stretch until `work` was done. A turn counts with
 * the time that passed or the time that this thread computed, whichever is less: the first is exact but
 * counts what else the machine was busy with, the second leaves that out but is counted by many kernels in
 * steps of 4 ms. Everything that runs on this thread counts, the test's own doings included: what sends and
 * answers large bodies belongs in another process. Rejects as `work` does.
 */
export async function holdOf<T>(work: () => Promise<T>): Promise<Held<T>> {
  const pauses: PerformanceEntry[] = []
  const collections = new PerformanceObserver((list) => void pauses.push(...list.getEntries()))
  const held: Turn[] = []
  await turn()
  collections.observe({ entryTypes: ['gc'] })
  let last = now()
  const look = (): void => {
    const next = now()
    const least = Math.min(next.passed - last.passed, next.computed - last.computed)
    if (least >= 1) held.push({ from: last.passed, to: next.passed, held: least })
    last = next
  }
  // One timer, not an immediate each turn: with the hooks of the test's runner those hold the loop themselves.
  const looking = setInterval(look, 1)
  const value = await work().finally(() => {
    look()
    clearInterval(looking)
  })
  // A pause is reported in a later turn.
  for (let later = 0; later < 3; later += 1) await turn()
  collections.disconnect()
  const paused = ({ from, to }: Turn): number =>
    pauses
      .filter(({ startTime }) => startTime >= from && startTime < to)
      .reduce((sum, { duration }) => sum + duration, 0)
  return {
    value,
    worstMs: Math.max(0, ...held.map((one) => one.held)),
    ownMs: Math.max(0, ...held.map((one) => one.held - paused(one))),
  }
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** What has passed, and what this thread has computed for. ms. */
function now(): { readonly passed: number; readonly computed: number } {
  const { user, system } = process.threadCpuUsage()
  return { passed: performance.now(), computed: (user + system) / 1000 }
}
