import type { Task } from './every.ts'

interface RoundsOptions<Item> {
  readonly name: string
  readonly everyMs: number
  /** The number of items that are worked on at once. */
  readonly atOnce: number
  /** Lists the items of a round; the next one is taken when there is room for it. */
  readonly due: () => AsyncIterable<Item> | Iterable<Item>
  /** An item whose id is under way already is passed over. */
  readonly idOf: (item: Item) => string
  /** Does one piece of work, and must not reject. `signal` fires when the task is stopped. */
  readonly work: (item: Item, signal: AbortSignal) => Promise<void>
  /** True: a round ends when all that it began has ended. False: when all that was due has begun. */
  readonly waits: boolean
  readonly atStart?: boolean
}

/** A task in rounds. `run` is one round; a call during a round joins it. */
export interface RoundsTask extends Task {
  /** Cuts the work under way and begins no more. Resolves when the last of it has ended. */
  readonly stop: () => Promise<void>
}

/** Makes a task that works on the items that are due, `atOnce` at once and never the same twice at once. */
export function rounds<Item>(options: RoundsOptions<Item>): RoundsTask {
  const { name, everyMs, atStart = false, atOnce, due, idOf, work, waits } = options
  const stopping = new AbortController()
  const { signal } = stopping
  const underWay = new Map<string, Promise<void>>()
  const ended = (): Promise<unknown> => Promise.all(underWay.values())
  let current: Promise<void> | null = null

  const beginAll = async (): Promise<void> => {
    if (signal.aborted) return
    for await (const item of due()) {
      const id = idOf(item)
      if (underWay.has(id)) continue
      if (underWay.size >= atOnce) await Promise.race(underWay.values())
      if (signal.aborted) return
      underWay.set(
        id,
        work(item, signal).finally(() => underWay.delete(id)),
      )
    }
  }
  const round = async (): Promise<void> => {
    try {
      await beginAll()
    } finally {
      if (waits) await ended()
      current = null
    }
  }
  return {
    name,
    everyMs,
    atStart,
    run: () => (current ??= round()),
    async stop() {
      stopping.abort()
      // The caller of `run` gets the error of a round.
      await Promise.allSettled([current])
      await ended()
    },
  }
}
