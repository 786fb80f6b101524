import type { HangupSignal } from '../../../plugins/arrival.ts'
import { hangupReason, type UpstreamErrorKind, type UpstreamHeaders } from '../upstream/answer.ts'

/** Why a request to a provider came to nothing: how it broke, or the status of the answer. */
export type RetryCause = UpstreamErrorKind | number

/** When the same provider is asked again. Times in ms. */
export interface RetryRule {
  /** The requests to it for one call, the first one included. */
  readonly attempts: number
  readonly on: readonly RetryCause[]
  /** The wait before the second request; doubled before each further one. */
  readonly backoff_ms: number
  /** The longest wait. */
  readonly most_ms: number
}

interface FailedRequest {
  readonly cause: RetryCause
  readonly headers: UpstreamHeaders
  /** The requests to this provider so far. */
  readonly asked: number
}

/** Sources of time and chance. `now`: ms since the epoch. `random`: from 0 to 1. */
interface RetryClock {
  readonly now: () => number
  readonly random: () => number
}

/**
 * Returns the time until the same provider is asked again, ms; null if it is not: the rule does not say so, or the
 * provider forbids it, or wants a longer wait than the rule allows. A request that timed out is never sent again: the
 * provider may still be at work on it.
 */
export function retryDelay(
  rule: RetryRule | undefined,
  { cause, headers, asked }: FailedRequest,
  { now, random }: RetryClock,
): number | null {
  if (!rule || cause === 'timeout' || asked >= rule.attempts || !rule.on.includes(cause)) return null
  if (headers['x-should-retry'] === 'false') return null
  const stated = retryAfterMs(headers, now())
  if (stated !== null) return stated > rule.most_ms ? null : stated
  // Callers that failed together must not come back together.
  return Math.min(rule.most_ms, rule.backoff_ms * 2 ** (asked - 1)) * (0.5 + random() / 2)
}

/** Reads how long a provider wants to be left alone, ms (RFC 9110 §10.2.3); null if it does not say. */
export function retryAfterMs(headers: UpstreamHeaders, now: number): number | null {
  const { 'retry-after-ms': milliseconds = '', 'retry-after': after = '' } = headers
  if (DECIMAL.test(milliseconds)) return Number(milliseconds)
  if (DECIMAL.test(after)) return Number(after) * 1000
  const until = HTTP_DATE.test(after) ? Date.parse(after) : Number.NaN
  return Number.isNaN(until) ? null : Math.max(0, until - now)
}

const DECIMAL = /^\d{1,12}(?:\.\d{1,6})?$/
const HTTP_DATE = /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/

/** Resolves after a time. Rejects with the hangup's reason as soon as nobody waits any more. */
export function waitUnlessGone(
  ms: number,
  hangup: Pick<HangupSignal, 'gone' | 'reason' | 'onGone' | 'offGone'>,
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  if (hangup.gone) return Promise.reject(hangupReason(hangup))
  const gone = (): void => {
    clearTimeout(timer)
    reject(hangupReason(hangup))
  }
  const timer = setTimeout(() => {
    hangup.offGone(gone)
    resolve()
  }, ms)
  hangup.onGone(gone)
  return promise
}
