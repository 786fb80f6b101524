import { LRUCache } from 'lru-cache'

/**
 * The failures that an address or a principal may have within the window before it waits
 * (docs/protocol.md#admin-throttle).
 */
const MAX_FAILURES = 10
const WINDOW_MS = 60_000
/** Bounds each of the two lists, so that no flood grows them. */
const MAX_REMEMBERED = 10_000

interface Count {
  readonly failures: number
  /** The end of the first failure's window. ms since the epoch. */
  readonly until: number
}

/**
 * Counts failures over a fixed window, by address for the operator's secret and by principal for API keys.
 * Each plugin owns one; lost with the process. Those who wait are kept apart from those who may still try: a
 * flood of single failures forgets other single failures, and lets nobody in who has to wait.
 */
export class Throttle {
  readonly #counts = new LRUCache<string, Count>({ max: MAX_REMEMBERED })
  /** The end of each one's wait. ms since the epoch. */
  readonly #waits = new LRUCache<string, number>({ max: MAX_REMEMBERED })

  /** Returns the seconds to wait, or 0 where this one may try. */
  waitS(who: string, at: number): number {
    const until = this.#waits.get(who) ?? at
    return at < until ? Math.ceil((until - at) / 1000) : 0
  }

  /**
   * Counts a failure. One that comes while its sender waits, of a guess that was under way, changes nothing.
   */
  failed(who: string, at: number): void {
    if (this.waitS(who, at) > 0) return
    const known = this.#counts.get(who)
    const { failures, until } = known && at < known.until ? known : { failures: 0, until: at + WINDOW_MS }
    if (failures + 1 < MAX_FAILURES) {
      this.#counts.set(who, { failures: failures + 1, until })
      return
    }
    this.#counts.delete(who)
    this.#waits.set(who, until)
  }
}
