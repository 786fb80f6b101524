const FIRST_MS = 2_000
const MAX_MS = 300_000

/** Returns the wait after so many failures in a row. `random`: from 0 to 1. ms, at most five minutes. */
export function retryDelayMs(failures: number, random: number): number {
  const longest = Math.min(MAX_MS, FIRST_MS * 2 ** (failures - 1))
  // Half of it by chance: agents that failed together must not come back together.
  return Math.round((longest / 2) * (1 + random))
}

interface FailedPush {
  readonly revision: number
  readonly failures: number
  /** ms since the epoch. */
  readonly dueAt: number
}

/**
 * The agents that could not be pushed, each with its next try. In memory: a restart tries all of them at
 * once.
 */
export class BackOff {
  readonly #failed = new Map<string, FailedPush>()

  /** Tells whether that revision has failed, so that {@link due} brings it up. A newer one need not wait. */
  holds(id: string, revision: number): boolean {
    return (this.#failed.get(id)?.revision ?? 0) >= revision
  }

  /** Notes a failure. Returns the agent's wait from now on. ms. */
  failed(id: string, revision: number, at: number): { readonly failures: number; readonly delayMs: number } {
    const before = this.#failed.get(id)
    const failures = (before?.failures ?? 0) + 1
    const delayMs = retryDelayMs(failures, Math.random())
    const highest = Math.max(revision, before?.revision ?? 0)
    this.#failed.set(id, { revision: highest, failures, dueAt: at + delayMs })
    return { failures, delayMs }
  }

  settled(id: string): void {
    this.#failed.delete(id)
  }

  /** Returns the agents whose wait is over, the longest over first. */
  due(at: number): readonly string[] {
    return [...this.#failed]
      .filter(([, { dueAt }]) => dueAt <= at)
      .toSorted(([, one], [, other]) => one.dueAt - other.dueAt)
      .map(([id]) => id)
  }
}
