/** The rule by which a provider that fails is left alone. Times in seconds. */
export interface BreakerRule {
  /** The failures in a row that open it. */
  readonly failures: number
  /** The share of failed requests that opens it, of at least `of` in the last `window_s`. */
  readonly rate: number
  readonly of: number
  readonly window_s: number
  /** The time until one request may try again; doubled with each that fails, up to `most_s`. */
  readonly open_s: number
  readonly most_s: number
}

export type BreakerState = 'closed' | 'half_open' | 'open'

/** Allows one request. Its result counts only if the breaker has neither opened nor closed since. */
export interface BreakerPass {
  readonly era: number
  /** True: it alone finds out if the provider answers again. */
  readonly isProbe: boolean
}

/**
 * One result of a request. `refused`: an answer that says nothing about the provider, as a 4xx. `broken_off`: an
 * answer that had begun well, and counted as `good`.
 */
export type RequestResult = 'good' | 'refused' | 'failed' | 'broken_off'

/** The parts of the window that are counted, and forgotten, at once. */
const PARTS = 10

interface WindowPart {
  step: number
  requests: number
  failed: number
}

/**
 * Opens when a provider fails, and lets one request at a time find out when it answers again. A probe that neither
 * succeeds nor fails within the time of one opening makes room for another one. Keeps ten counts, however many
 * requests there are. `now`: ms of a monotonic clock.
 */
export class CircuitBreaker {
  readonly #rule: BreakerRule
  readonly #now: () => number
  readonly #window: WindowPart[]
  #era = 0
  #running = 0
  /** Null: it is closed. */
  #openUntil: number | null = null
  #openMs = 0
  #probeUntil = 0
  #limitedUntil = 0

  constructor(rule: BreakerRule, now: () => number) {
    this.#rule = rule
    this.#now = now
    this.#window = Array.from({ length: PARTS }, () => ({ step: -1, requests: 0, failed: 0 }))
  }

  get state(): BreakerState {
    const now = this.#now()
    if (this.#openUntil === null) return now < this.#limitedUntil ? 'open' : 'closed'
    return now < this.#openUntil ? 'open' : 'half_open'
  }

  /** Tells whether `pass` would allow a request. */
  get mayPass(): boolean {
    const { state } = this
    return state === 'closed' || (state === 'half_open' && this.#now() >= this.#probeUntil)
  }

  /** Allows a request; null: none now. */
  pass(): BreakerPass | null {
    if (!this.mayPass) return null
    const isProbe = this.#openUntil !== null
    if (isProbe) this.#probeUntil = this.#now() + this.#openMs
    return { era: this.#era, isProbe }
  }

  /** Allows a request whatever the state is, because there is no other provider. */
  force(): BreakerPass {
    return { era: this.#era, isProbe: false }
  }

  /** Counts the result of a request. Never called for one that nobody waited for. */
  note({ era, isProbe }: BreakerPass, result: RequestResult): void {
    if (era !== this.#era) return
    const isFailure = result === 'failed' || result === 'broken_off'
    if (this.#openUntil !== null) {
      if (!isFailure) this.#close()
      else if (isProbe) this.#open(Math.min(this.#openMs * 2, this.#rule.most_s * 1000))
      return
    }
    if (result === 'refused') return
    const part = this.#part()
    if (result !== 'broken_off') part.requests += 1
    if (isFailure) part.failed += 1
    this.#running = isFailure ? this.#running + 1 : 0
    if (isFailure && this.#isFailing()) this.#open(this.#rule.open_s * 1000)
  }

  /** Lets no request pass for the time that the provider asked for. ms. */
  limit(ms: number): void {
    this.#limitedUntil = Math.max(this.#limitedUntil, this.#now() + Math.min(ms, this.#rule.most_s * 1000))
  }

  #open(ms: number): void {
    this.#era += 1
    this.#openMs = ms
    this.#openUntil = this.#now() + ms
    this.#probeUntil = 0
  }

  #close(): void {
    this.#era += 1
    this.#openUntil = null
    this.#running = 0
    for (const part of this.#window) part.step = -1
  }

  #isFailing(): boolean {
    const { failures, rate, of } = this.#rule
    if (this.#running >= failures) return true
    const newest = this.#step()
    let [requests, failed] = [0, 0]
    for (const part of this.#window)
      if (part.step >= 0 && part.step > newest - PARTS) {
        requests += part.requests
        failed += part.failed
      }
    // An answer that broke off may have begun before the window.
    requests = Math.max(requests, failed)
    return requests >= of && failed >= rate * requests
  }

  #part(): WindowPart {
    const step = this.#step()
    const part = this.#window[step % PARTS]
    if (!part) throw new Error(`the window has no part ${step}`)
    if (part.step !== step) Object.assign(part, { step, requests: 0, failed: 0 })
    return part
  }

  #step(): number {
    return Math.floor((this.#now() * PARTS) / (this.#rule.window_s * 1000))
  }
}
