import type { HangupSignal } from '../../../plugins/plugin.ts'

/** The longest time that one waits. ms. */
export const MAX_ROOM_WAIT_MS = 20_000
/** After so long nothing of its holder's that came later goes before it. ms. */
const PATIENCE_MS = 5_000
/** The most that wait, and a quarter of them. Each has some 64 KiB that came before it was not read on. */
const MAX_WAITING = 1_024
const MAX_OF_HOLDER = 256

interface WaitingTurn {
  readonly since: number
  /** Takes what it waits for. False: that does not fit yet. */
  readonly take: () => boolean
  readonly end: (taken: boolean) => void
}

/**
 * The line of those that wait for room. Holders take turns; of one holder's the first that fits has its turn.
 * If the line is full, the newest of the holder that has most in it goes.
 */
export class WaitingLine {
  /** Keyed by holder, in the order of their turns. */
  readonly #lines = new Map<string, Set<WaitingTurn>>()
  readonly #waitMs: number
  length = 0
  #isOffering = false

  /** `waitMs`: default: {@link MAX_ROOM_WAIT_MS}. */
  constructor(waitMs = MAX_ROOM_WAIT_MS) {
    this.#waitMs = waitMs
  }

  has(holder: string): boolean {
    return this.#lines.has(holder)
  }

  /** Resolves with true once `take` has; with false after `waitMs`, or once nobody waits for it any more. */
  async wait(
    holder: string,
    take: () => boolean,
    hangup: Pick<HangupSignal, 'onGone' | 'offGone'>,
  ): Promise<boolean> {
    const own = this.#lines.get(holder) ?? new Set()
    if (own.size >= MAX_OF_HOLDER || !this.#makePlace(own.size)) return false
    const { promise, resolve } = Promise.withResolvers<boolean>()
    const turn: WaitingTurn = { since: performance.now(), take, end: resolve }
    this.#lines.set(holder, own.add(turn))
    this.length += 1
    const leave = (): void => {
      this.#remove(holder, turn)
      resolve(false)
    }
    const timer = setTimeout(leave, this.#waitMs)
    hangup.onGone(leave)
    this.offer()
    const taken = await promise
    clearTimeout(timer)
    hangup.offGone(leave)
    return taken
  }

  /** Has those that wait try again, once in a turn of the loop. */
  offer(): void {
    if (this.length === 0 || this.#isOffering) return
    this.#isOffering = true
    setImmediate(() => {
      this.#isOffering = false
      while (this.#offerOnce());
    })
  }

  /** Gives each holder one turn. False: nothing fits. */
  #offerOnce(): boolean {
    const last = performance.now() - PATIENCE_MS
    let isTaken = false
    for (const [holder, own] of [...this.#lines]) {
      const turn = firstTaken(own, last)
      if (!turn) continue
      isTaken = true
      this.#remove(holder, turn)
      // Whatever else it has comes after everybody's.
      if (this.#lines.delete(holder)) this.#lines.set(holder, own)
      turn.end(true)
    }
    return isTaken
  }

  #makePlace(own: number): boolean {
    if (this.length < MAX_WAITING) return true
    const [fullest] = [...this.#lines].sort(([, one], [, other]) => other.size - one.size)
    const newest = fullest && [...fullest[1]].at(-1)
    if (!newest || fullest[1].size <= own + 1) return false
    this.#remove(fullest[0], newest)
    newest.end(false)
    return true
  }

  #remove(holder: string, turn: WaitingTurn): void {
    const own = this.#lines.get(holder)
    if (!own?.delete(turn)) return
    this.length -= 1
    if (own.size === 0) this.#lines.delete(holder)
  }
}

/** Returns the first that has taken what it waits for. `last`: nothing goes before one that came earlier. */
function firstTaken(line: ReadonlySet<WaitingTurn>, last: number): WaitingTurn | null {
  for (const turn of line) {
    if (turn.take()) return turn
    if (turn.since < last) return null
  }
  return null
}
