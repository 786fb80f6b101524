import type { Logger } from 'pino'

export interface PeriodicTask {
  readonly name: string
  readonly everyMs: number
  /** True: runs once at the start too, not only when the first interval is over. */
  readonly atStart?: boolean
  readonly run: () => Promise<void>
}

/** Runs each task at its interval, never twice at once, and logs its errors. Returns their stop. */
export function runTasks(tasks: readonly PeriodicTask[], log: Logger): () => void {
  const timers = tasks.map((task) => {
    let running = false
    const tick = (): void => {
      if (running) return
      running = true
      task
        .run()
        .catch((error: unknown) => log.error({ err: error, task: task.name }, 'task failed'))
        .finally(() => {
          running = false
        })
    }
    if (task.atStart) tick()
    return setInterval(tick, task.everyMs).unref()
  })
  return () => {
    for (const timer of timers) clearInterval(timer)
  }
}

interface RoundsOptions<Item> {
  readonly name: string
  readonly everyMs: number
  readonly atOnce: number
  /** Lists the items of a round; the next one is taken when there is room for it. */
  readonly due: () => AsyncIterable<Item> | Iterable<Item>
  /** An item whose id is under way already is passed over. */
  readonly idOf: (item: Item) => string
  /** Must not reject. `signal` fires when the task is stopped, or led by another process. */
  readonly work: (item: Item, signal: AbortSignal) => Promise<void>
  /** True if this process does the work. Work under way is cut once it does not. Absent: it does. */
  readonly leads?: () => boolean
  /** True: a round ends when all that it began has ended. False: when all that was due has begun. */
  readonly waits: boolean
  readonly atStart?: boolean
}

export interface RoundsTask extends PeriodicTask {
  /** Cuts the work under way and begins no more. Resolves when the last of it has ended. */
  readonly stop: () => Promise<void>
}

/** Makes a task that works on the items that are due, `atOnce` at once and never the same twice at once. */
export function rounds<Item>(options: RoundsOptions<Item>): RoundsTask {
  const { name, everyMs, atStart = false, atOnce, due, idOf, work, waits, leads = alwaysLeads } = options
  const stopping = new AbortController()
  const { signal } = stopping
  const leading = new LeadershipWatch(leads)
  const underWay = new Map<string, Promise<void>>()
  const ended = (): Promise<unknown> => Promise.all(underWay.values())
  let current: Promise<void> | null = null
  // The first question begins to want the lead: by the first round it is known.
  leads()

  const beginAll = async (): Promise<void> => {
    if (signal.aborted || !leads()) return
    for await (const item of due()) {
      const id = idOf(item)
      if (underWay.has(id)) continue
      if (underWay.size >= atOnce) await Promise.race(underWay.values())
      if (signal.aborted || !leads()) return
      const ended = leading.begin()
      const done = work(item, AbortSignal.any([signal, leading.signal])).finally(() => {
        underWay.delete(id)
        ended()
      })
      underWay.set(id, done)
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

const alwaysLeads = (): boolean => true

/** The interval of the look whether this process still leads its task. ms. */
const LOOK_MS = 100

/** Cuts the work under way of a process that leads no more. */
class LeadershipWatch {
  readonly #leads: () => boolean
  #cut = new AbortController()
  #underWay = 0
  #timer: NodeJS.Timeout | undefined

  constructor(leads: () => boolean) {
    this.#leads = leads
  }

  /** The signal of work that begins now. */
  get signal(): AbortSignal {
    return this.#cut.signal
  }

  /** Looks after work that begins now. Returns the function that says that it has ended. */
  begin(): () => void {
    this.#underWay += 1
    if (this.#leads !== alwaysLeads) this.#timer ??= setInterval(() => this.#look(), LOOK_MS).unref()
    return () => {
      this.#underWay -= 1
      if (this.#underWay > 0) return
      clearInterval(this.#timer)
      this.#timer = undefined
    }
  }

  #look(): void {
    if (this.#leads()) return
    this.#cut.abort()
    this.#cut = new AbortController()
  }
}
