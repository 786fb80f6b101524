import { LRUCache } from 'lru-cache'
import type { Monotonic } from '../../plugins/secrets/throttle.ts'

/** The tokens that one principal may have in a minute: each is a row of the ledger, and lasts up to 15 minutes. */
const MOST = 600
/** The same while the disk is low. */
const MOST_LOW = 60
const MINUTE_MS = 60_000
const MAX_REMEMBERED = 10_000

interface Count {
  readonly issued: number
  /** ms of the monotonic clock. */
  readonly until: number
}

/**
 * Counts the tokens of each principal over a fixed minute: whoever is known is given one, also where it holds
 * nothing, and nobody may fill the disk with their rows (docs/threats.md#d3). Lost with the process.
 */
export class TokenQuota {
  readonly #now: Monotonic
  readonly #low: () => boolean
  readonly #counts = new LRUCache<string, Count>({ max: MAX_REMEMBERED })

  /** `low`: tells whether little is left of the disk. */
  constructor(now: Monotonic, low: () => boolean) {
    this.#now = now
    this.#low = low
  }

  /** Takes one token. Returns 0, or the seconds to wait where there are none left. */
  take(principalId: string): number {
    const at = this.#now()
    const known = this.#counts.get(principalId)
    const { issued, until } = known && at < known.until ? known : { issued: 0, until: at + MINUTE_MS }
    if (issued >= (this.#low() ? MOST_LOW : MOST)) return Math.ceil((until - at) / 1000)
    this.#counts.set(principalId, { issued: issued + 1, until })
    return 0
  }
}
