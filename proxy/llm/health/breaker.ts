import type { LlmProvider } from '../options.ts'
import type { UpstreamHeaders } from '../upstream/answer.ts'
import { type RetryCause, retryAfterMs } from './retry.ts'

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

export type BreakableProvider = Pick<LlmProvider, 'name' | 'base_url' | 'breaker'>

/** A breaker that the file has turned off is always closed. */
export type ProviderBreakerState = BreakerState | 'off'

/** The state of all providers together: `down` if no call would be let through to any. */
export type ProvidersStanding = 'ok' | 'degraded' | 'down'

interface BreakersOptions {
  /** ms of a monotonic clock. */
  readonly now: () => number
  /** ms since the epoch. */
  readonly clock: () => number
}

interface KnownBreaker {
  readonly place: string
  readonly breaker: CircuitBreaker
}

const OFF: BreakerPass = { era: 0, isProbe: false }

/**
 * Keeps the breaker of each provider, by name, whichever configuration is in force: one whose rule or place has
 * changed begins again. As many as providers that were ever configured.
 */
export class ProviderBreakers {
  readonly clock: () => number
  readonly #now: () => number
  readonly #known = new Map<string, KnownBreaker>()

  constructor({ now, clock }: BreakersOptions) {
    this.#now = now
    this.clock = clock
  }

  state(provider: BreakableProvider): ProviderBreakerState {
    return this.#of(provider)?.state ?? 'off'
  }

  /** Tells whether a request to a provider would be let through now. */
  mayPass(provider: BreakableProvider): boolean {
    return this.#of(provider)?.mayPass ?? true
  }

  /** Lets one request to a provider through; null: it is left alone now. */
  pass(provider: BreakableProvider): BreakerPass | null {
    const breaker = this.#of(provider)
    return breaker ? breaker.pass() : OFF
  }

  /** Lets one through although its provider is left alone: there is no other one. */
  force(provider: BreakableProvider): BreakerPass {
    return this.#of(provider)?.force() ?? OFF
  }

  note(provider: BreakableProvider, pass: BreakerPass, result: RequestResult): void {
    this.#of(provider)?.note(pass, result)
  }

  /**
   * Counts what came of a request: no answer, or one of a status. A 429 is no failure, but its provider is left alone
   * for its `retry-after`, unless the limit is that of the caller's own key.
   */
  noteCame(
    provider: BreakableProvider,
    pass: BreakerPass,
    { cause, headers, isCallerKey }: CameOfRequest,
  ): void {
    const breaker = this.#of(provider)
    breaker?.note(pass, resultOf(cause))
    const waitMs = cause === 429 && !isCallerKey ? retryAfterMs(headers, this.clock()) : null
    if (waitMs !== null) breaker?.limit(waitMs)
  }

  /** Tells how all providers are. Those that are turned off count as well. */
  standing(providers: readonly BreakableProvider[]): ProvidersStanding {
    const states = providers.map((one) => this.state(one))
    const isFit = (state: ProviderBreakerState): boolean => state === 'closed' || state === 'off'
    if (states.every(isFit)) return 'ok'
    return states.every((state) => state === 'open') ? 'down' : 'degraded'
  }

  #of(provider: BreakableProvider): CircuitBreaker | null {
    const { name, breaker: rule, base_url: base } = provider
    if (rule === 'off') return null
    const known = this.#known.get(name)
    const place = placeOf(provider, rule, base)
    if (known?.place === place) return known.breaker
    const breaker = new CircuitBreaker(rule, this.#now)
    this.#known.set(name, { place, breaker })
    return breaker
  }
}

interface CameOfRequest {
  readonly cause: RetryCause
  readonly headers: UpstreamHeaders
  readonly isCallerKey: boolean
}

function resultOf(cause: RetryCause): RequestResult {
  if (typeof cause !== 'number' || cause >= 500) return 'failed'
  return cause < 300 ? 'good' : 'refused'
}

const places = new WeakMap<object, string>()

/** Names the rule and the place of a provider: made once for each configuration. */
function placeOf(provider: BreakableProvider, rule: object, base: string): string {
  const known = places.get(provider)
  if (known !== undefined) return known
  const place = `${base}\n${JSON.stringify(rule)}`
  places.set(provider, place)
  return place
}
