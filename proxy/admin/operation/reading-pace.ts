const MINUTE_MS = 60_000

/** Counts the bytes read of a text in each minute. */
export class ReadingPace {
  readonly #now: () => number
  /** The begin of the minute that is counted. */
  #since: number
  #bytes = 0
  #last: number | null = null

  /** `now`: a clock that never goes back. ms. */
  constructor(now: () => number) {
    this.#now = now
    this.#since = now()
  }

  read(bytes: number): void {
    this.#turn()
    this.#bytes += bytes
  }

  /** The bytes of the last whole minute; null: there was none yet. */
  get lastMinute(): number | null {
    this.#turn()
    return this.#last
  }

  #turn(): void {
    const minutes = Math.floor((this.#now() - this.#since) / MINUTE_MS)
    if (minutes === 0) return
    this.#last = minutes === 1 ? this.#bytes : 0
    this.#bytes = 0
    this.#since += minutes * MINUTE_MS
  }
}
