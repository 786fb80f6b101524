/** What a piece of work did to the loop while it was under way. */
export interface Held<T> {
  /** The work's own result. */
  readonly value: T
  /** The longest single turn of the loop. ms. */
  readonly worstMs: number
  /** Turns of the loop. */
  readonly turns: number
}

/**
 * Measures how long the loop of this thread was held at a stretch until `work` was done. A turn counts with
 * the time that passed or the time that this thread computed, whichever is less: the first is exact but
 * counts what else the machine was busy with, the second leaves that out but is counted by many kernels in
 * steps of 4 ms. Everything that runs on this thread counts, the test's own doings included: what sends and
 * answers large bodies belongs in another process. Rejects as `work` does.
 */
export async function holdOf<T>(work: () => Promise<T>): Promise<Held<T>> {
  let over = false
  let worstMs = 0
  let turns = 0
  await turn()
  let last = now()
  const done = work().finally(() => {
    over = true
  })
  // Whoever awaits it below hears it; until then it is not unhandled.
  done.catch(() => {})
  while (!over) {
    await turn()
    const next = now()
    worstMs = Math.max(worstMs, Math.min(next.passed - last.passed, next.computed - last.computed))
    turns += 1
    last = next
  }
  return { value: await done, worstMs, turns }
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** What has passed, and what this thread has computed for. ms. */
function now(): { readonly passed: number; readonly computed: number } {
  const { user, system } = process.threadCpuUsage()
  return { passed: performance.now(), computed: (user + system) / 1000 }
}
