import type { TracedRequest } from '../../plugins/call-trace.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { CredentialError } from './credentials/provider-keys.ts'
import { DIALECT_OF_WIRE } from './dialects/registry.ts'
import type { BreakerPass } from './health/breaker.ts'
import { waitUnlessGone } from './health/retry.ts'
import type { LlmDependencies, LlmFacts } from './llm-call.ts'
import { type AskedRequest, sendRequest, tellRequest } from './provider-request.ts'
import {
  type AttemptRecord,
  attemptOf,
  notConfiguredFailure,
  type ProviderFailure,
  refusalOfFailure,
} from './refusals.ts'
import type { ProviderAnswer } from './refused-answer.ts'
import type { AskedTarget, ProviderTarget } from './routing.ts'
import { hasCredentials } from './upstream/headers.ts'

/**
 * Asks providers in order until one answers otherwise than by a failed connection, a timeout, 402, 408, 409, 429 or
 * 5xx, or an error as the first event of its stream. Passes over those whose breaker is open, and asks one again as
 * its `retry` says. Refuses with the `provider_*` reasons and `translation_lossy`. Throws the hangup's reason if the
 * caller has hung up.
 */
export const firstAnswer = (
  targets: readonly AskedTarget[],
  facts: LlmFacts,
  means: LlmDependencies,
): Promise<ProviderAnswer> => new ProviderSearch(targets, facts, means).answer()

class ProviderSearch {
  readonly #targets: readonly AskedTarget[]
  readonly #facts: LlmFacts
  readonly #means: LlmDependencies
  /** The requests that gave no answer, and the providers that were passed over. */
  readonly #records: AttemptRecord[] = []
  readonly #asked: AskedTarget[] = []
  #last: ProviderFailure | null = null
  #lossy: Refusal | null = null
  #waitedMs = 0
  /** True: nobody else may be asked. */
  #isOver = false

  constructor(targets: readonly AskedTarget[], facts: LlmFacts, means: LlmDependencies) {
    this.#targets = targets
    this.#facts = facts
    this.#means = means
  }

  async answer(): Promise<ProviderAnswer> {
    for (const [index, target] of this.#targets.entries()) {
      if (this.#isOver) break
      const answered = await this.#askIfFit(target, index)
      if (answered) return answered
    }
    const answered = this.#asked.length === 0 ? await this.#askFirstOpen() : null
    return answered ?? this.#refuse()
  }

  #askIfFit(target: AskedTarget, index: number): Promise<ProviderAnswer | null> | null {
    const { provider } = target
    // A target without a key was not asked, so it does not hide the answer of another one.
    if (!hasCredentials(provider, this.#facts.headers)) this.#last ??= notConfiguredFailure(provider)
    if (!this.#mayAsk(target)) return null
    if (!this.#means.breakers.mayPass(provider)) return this.#passOver(target)
    return this.#ask(target, () => this.#means.breakers.pass(provider), index)
  }

  #mayAsk(target: AskedTarget): boolean {
    return (
      hasCredentials(target.provider, this.#facts.headers) &&
      this.#asked.every((before) => mayFollow(before, target))
    )
  }

  #passOver({ provider: { name } }: AskedTarget): null {
    this.#records.push({ provider: name, skipped: 'open' })
    return null
  }

  /** Asks the first of the providers that were passed over: there is no other one. */
  async #askFirstOpen(): Promise<ProviderAnswer | null> {
    const { breakers } = this.#means
    for (const target of this.#targets) {
      const { provider } = target
      const place = this.#records.findIndex((one) => one.provider === provider.name)
      if (place < 0) continue
      let forced: BreakerPass | null = breakers.force(provider)
      const pass = (): BreakerPass | null => {
        const once = forced ?? breakers.pass(provider)
        forced = null
        return once
      }
      const answered = await this.#ask(target, pass, this.#targets.length, place)
      if (answered || this.#asked.length > 0) return answered
    }
    return null
  }

  /**
   * Asks one provider, as often as its `retry` says. Resolves with null if another one is to be asked. `pass`: lets
   * each request through. `place`: of the record that it was passed over, which is not so then.
   */
  async #ask(
    target: AskedTarget,
    pass: () => BreakerPass | null,
    index: number,
    place = -1,
  ): Promise<ProviderAnswer | null> {
    const request = await this.#prepare(target)
    if (!request) return null
    const hasNext = (): boolean =>
      this.#targets
        .slice(index + 1)
        .some((one) => this.#mayAsk(one) && this.#means.breakers.mayPass(one.provider))
    const retryUntil = performance.now() + target.timeouts.firstByteMs
    for (let asked = 1; ; asked += 1) {
      const passed = pass()
      // A failure of its own has opened it, or one of other calls.
      if (!passed) return asked === 1 ? this.#passOver(target) : null
      if (asked === 1) {
        this.#asked.push(target)
        if (place >= 0) this.#records.splice(place, 1)
      }
      const askedAt = performance.now()
      const trace = this.#facts.trace?.attempt(tracedRequest(request.target, asked)) ?? null
      const sent = { ...request, pass: passed, asked, hasNext, retryUntil, trace }
      const outcome = await sendRequest(sent, this.#facts, this.#means).catch((error: unknown) => {
        throw this.#facts.hangup.gone ? goneRefusal(error, target, this.#records) : error
      })
      const cameAt = performance.now()
      this.#waitedMs += cameAt - askedAt
      if ('answer' in outcome) {
        const { answer } = outcome
        trace?.answered(answer.status)
        return { ...request, answer, failed: this.#records, waitedMs: this.#waitedMs, cameAt }
      }
      trace?.ended(outcome.failure.reason, outcome.failure.status)
      this.#noteFailure(outcome.failure)
      const isLast = this.#mayStillCost(outcome.failure)
      this.#isOver = !outcome.mayTryNext || isLast
      if (isLast || outcome.retryMs === null) return null
      await this.#wait(outcome.retryMs, outcome.failure)
    }
  }

  /** Tells a target of the call, and gives it its key. Resolves with null if that cannot be. */
  async #prepare(target: AskedTarget): Promise<AskedRequest | null> {
    const told = target.wire !== null ? await tellRequest(target, this.#facts) : null
    // One that cannot be told all of the request was not asked, likewise.
    if (told instanceof Refusal) {
      this.#lossy ??= told
      return null
    }
    if (!target.provider.credentials) return { target, told }
    const keyed = await withKey({ target, told }, this.#facts, this.#means)
    if (!('failure' in keyed)) return { target: keyed, told }
    this.#last ??= keyed.failure
    return null
  }

  /** True if a request that failed may cost something, of a call that a strict limit bounds: a second one would pass it. */
  #mayStillCost({ tokensUnknown }: ProviderFailure): boolean {
    const claims = this.#facts.limits?.claims ?? []
    return tokensUnknown !== undefined && claims.some(({ limit }) => limit.strict)
  }

  #noteFailure(failure: ProviderFailure): void {
    this.#last = failure
    this.#records.push(attemptOf(failure))
    if (failure.reason === 'provider_auth_failed') this.#means.providerKeys.refused(failure.provider)
  }

  async #wait(ms: number, { provider, tokensUnknown }: ProviderFailure): Promise<void> {
    const began = performance.now()
    await waitUnlessGone(ms, this.#facts.hangup).catch((cause: unknown) => {
      if (cause instanceof Refusal && cause.reason !== 'client_gone') throw cause
      throw new Refusal('client_gone', {
        detail: { provider: provider.name },
        report: { attempts: this.#records, ...(tokensUnknown && { tokens_unknown: tokensUnknown }) },
        cause,
      })
    })
    this.#waitedMs += performance.now() - began
  }

  async #refuse(): Promise<never> {
    if (!this.#last) throw this.#lossy ?? new Error('routing gave no target')
    const { isFree } = this.#facts.granted.target.endpoint
    const { tokensUnknown, ...free } = this.#last
    throw await refusalOfFailure(isFree ? free : this.#last, this.#records)
  }
}

const tracedRequest = ({ provider, model }: ProviderTarget, asked: number): TracedRequest => ({
  upstream: provider.name,
  origin: provider.base_url,
  model,
  resent: asked - 1,
})

/** Says of a call whose caller has hung up which provider may be at work on it. */
function goneRefusal(
  cause: unknown,
  { provider: { name } }: ProviderTarget,
  failed: readonly AttemptRecord[],
): unknown {
  if (cause instanceof Refusal && cause.reason !== 'client_gone') return cause
  const attempts = [...failed, { provider: name, status: null, reason: 'client_gone' }]
  return new Refusal('client_gone', {
    detail: { provider: name },
    report: { attempts, tokens_unknown: 'no_answer' },
    cause,
  })
}

/** Gives a target the key that its source has now. */
async function withKey(
  { target, told }: AskedRequest,
  { granted }: LlmFacts,
  { providerKeys }: LlmDependencies,
): Promise<ProviderTarget | { readonly failure: ProviderFailure }> {
  try {
    const dialect = told ? DIALECT_OF_WIRE[told.to] : granted.target.dialect
    return { ...target, headers: await providerKeys.headers(target.provider, dialect) }
  } catch (error) {
    if (!(error instanceof CredentialError)) throw error
    return { failure: { ...notConfiguredFailure(target.provider), cause: error } }
  }
}

/** Tells if a call may go on to another provider: a caller's own key is meant for one origin. */
const mayFollow = (one: ProviderTarget, next: ProviderTarget): boolean =>
  !(one.headers.passthrough || next.headers.passthrough) ||
  new URL(one.provider.base_url).origin === new URL(next.provider.base_url).origin
