import type { LlmProvider } from '../options.ts'
import type { UpstreamHeaders } from '../upstream/answer.ts'
import { type BreakerPass, type BreakerState, CircuitBreaker, type RequestResult } from './breaker.ts'
import { type RetryCause, retryAfterMs } from './retry.ts'

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
