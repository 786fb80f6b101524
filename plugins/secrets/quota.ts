import { boundedCache } from '../../db/support/bounded-cache.ts'
import type { MonotonicClock } from './throttle.ts'

const MINUTE_MS = 60_000
const MAX_REMEMBERED = 10_000

interface QuotaCount {
  readonly taken: number
  /** Taken here. */
  readonly own: number
  /** ms of the monotonic clock. */
  readonly until: number
}

/** The number after which a process tells the others, by default. */
const SHARED_EVERY = 10

/** Counts each principal's use over a fixed minute. Lost with the process. */
export class PrincipalQuota {
  readonly #now: MonotonicClock
  readonly #most: () => number
  readonly #tell: (principalId: string) => void
  readonly #told: number
  readonly #counts = boundedCache<QuotaCount>(MAX_REMEMBERED)

  /**
   * `most`: the quota of one principal in a minute, as of now. `tell` is called for each `told`th that one
   * takes here: for the other processes of a service, which are to call {@link addRemote}.
   */
  constructor(
    now: MonotonicClock,
    most: () => number,
    tell: (principalId: string) => void = () => {},
    told = SHARED_EVERY,
  ) {
    this.#now = now
    this.#most = most
    this.#tell = tell
    this.#told = told
  }

  /** Takes one. Returns 0, or the seconds to wait if there are none left. */
  consume(principalId: string): number {
    const at = this.#now()
    const { taken, own, until } = this.#countOf(principalId, at)
    if (taken >= this.#most()) return Math.ceil((until - at) / 1000)
    this.#counts.set(principalId, { taken: taken + 1, own: own + 1, until })
    if ((own + 1) % this.#told === 0) this.#tell(principalId)
    return 0
  }

  addRemote(principalId: string): void {
    const { taken, ...count } = this.#countOf(principalId, this.#now())
    this.#counts.set(principalId, { ...count, taken: taken + this.#told })
  }

  #countOf(principalId: string, at: number): QuotaCount {
    const known = this.#counts.get(principalId)
    return known && at < known.until ? known : { taken: 0, own: 0, until: at + MINUTE_MS }
  }
}
