import { LRUCache } from 'lru-cache'
import type { Monotonic } from './throttle.ts'

const MINUTE_MS = 60_000
const MAX_REMEMBERED = 10_000

interface Count {
  readonly taken: number
  /** ms of the monotonic clock. */
  readonly until: number
}

/** Counts what each principal takes over a fixed minute. Lost with the process. */
export class Quota {
  readonly #now: Monotonic
  readonly #most: () => number
  readonly #counts = new LRUCache<string, Count>({ max: MAX_REMEMBERED })

  /** `most`: what one principal may take in a minute, as of now. */
  constructor(now: Monotonic, most: () => number) {
    this.#now = now
    this.#most = most
  }

  /** Takes one. Returns 0, or the seconds to wait where there are none left. */
  take(principalId: string): number {
    const at = this.#now()
    const known = this.#counts.get(principalId)
    const { taken, until } = known && at < known.until ? known : { taken: 0, until: at + MINUTE_MS }
    if (taken >= this.#most()) return Math.ceil((until - at) / 1000)
    this.#counts.set(principalId, { taken: taken + 1, until })
    return 0
  }
}
