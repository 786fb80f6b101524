import type { JsonObject } from '../../db/support/json.ts'
import { Refusal, type RefusalReason } from '../../plugins/refusal.ts'
import type { DialectEndpoint } from './dialects/dialect.ts'
import type { LlmProvider } from './options.ts'
import { UpstreamError, type UpstreamErrorKind, type UpstreamHeaders } from './upstream/answer.ts'
import { requestIdOf, responseHeaders } from './upstream/headers.ts'
import { passedNames } from './upstream/passed-names.ts'
import type { ProviderWords } from './upstream/words.ts'

const REASON_OF_KIND = {
  connect: 'provider_unreachable',
  reset: 'provider_failed',
  timeout: 'provider_timeout',
} as const satisfies Record<UpstreamErrorKind, RefusalReason>

/** The failure of one provider, of which a refusal is made if no other provider answers. */
export interface ProviderFailure {
  readonly provider: LlmProvider
  readonly reason: RefusalReason
  /** The status of the provider's answer; null if there was none. */
  readonly status: number | null
  readonly headers?: UpstreamHeaders
  /** The provider's own words about it. Never rejects. */
  readonly words?: Promise<ProviderWords | null>
  /** For the log. */
  readonly cause?: unknown
}

/** One provider that was asked, as outcome rows say it. No reason: its answer was passed on. */
export interface ProviderAttempt extends JsonObject {
  readonly provider: string
  readonly status: number | null
  readonly reason?: RefusalReason
}

export const attemptOf = ({ provider, status, reason }: ProviderFailure): ProviderAttempt => ({
  provider: provider.name,
  status,
  reason,
})

/**
 * Makes the refusal of a failure (docs/protocol.md#upstream-failures), in the provider's own words if it has
 * any that may be passed on. `attempts`: every provider that was asked.
 */
export async function refusalOfFailure(
  failure: ProviderFailure,
  attempts: readonly ProviderAttempt[],
): Promise<Refusal> {
  const { provider, reason, status, headers = {}, cause } = failure
  const { message = missingKeyMessage(failure), ...said } = (await failure.words) ?? {}
  const requestId = requestIdOf(headers)
  return new Refusal(reason, {
    detail: { provider: provider.name, ...(status !== null && { upstream_status: status }) },
    ...(message !== undefined && { message, said }),
    headers: reason === 'provider_auth_failed' ? {} : waitingHeaders(headers, provider),
    report: { attempts, ...(requestId !== null && { upstream_request_id: requestId }) },
    cause,
  })
}

/**
 * Names the variable that would give a provider its key, never a value; undefined if there is nothing better
 * to say.
 */
const missingKeyMessage = ({
  reason,
  provider: { name, keyVariable },
}: ProviderFailure): string | undefined =>
  reason === 'provider_not_configured' && keyVariable !== undefined
    ? `The provider ${name} has no key: set ${keyVariable} in the environment of the gateway, and restart it.`
    : undefined

/** Returns the failure of a call that itself went wrong. Throws all but an {@link UpstreamError}. */
export function failureOfError(error: unknown, provider: LlmProvider): ProviderFailure {
  if (!(error instanceof UpstreamError)) throw error
  return { provider, reason: REASON_OF_KIND[error.kind], status: null, cause: error }
}

/**
 * Returns the reason why an answer of a status is not passed on: 401, 403, 429, 5xx, redirects; null if the
 * status is the provider's own answer to this request.
 */
export function reasonOfStatus(status: number): RefusalReason | null {
  if (status === 401 || status === 403) return 'provider_auth_failed'
  if (status === 429) return 'provider_rate_limited'
  if (status === 529) return 'provider_overloaded'
  return status < 200 || status >= 500 || (status >= 300 && status < 400) ? 'provider_failed' : null
}

/** Tells whether a status says that another provider may well answer the same request. */
export const isTransientStatus = (status: number): boolean => status === 429 || status >= 500

export const notConfiguredFailure = (provider: LlmProvider): ProviderFailure => ({
  provider,
  reason: 'provider_not_configured',
  status: null,
})

/**
 * Picks the headers by which the provider says whether and when to come back, and how much is left; and those
 * that the operator lets through.
 */
function waitingHeaders(headers: UpstreamHeaders, provider: LlmProvider): Record<string, string> {
  const returns = passedNames('pass_answer_headers', provider.pass_answer_headers)
  return Object.fromEntries(
    Object.entries(responseHeaders(headers, returns)).filter(
      ([name]) => WAITING.test(name) || returns?.(name) === true,
    ),
  )
}

const WAITING = /^retry-after|^x-should-retry$|ratelimit/

/**
 * Tells a client's loop, by the endpoint's own error event, that its stream was cut off
 * (docs/protocol.md#clients). `error`: of the stream. `tail`: the last bytes that were sent; an event that
 * was cut in half is closed first, or ours would be read as its rest.
 */
export function brokenOffEvent(
  { errorEvent }: DialectEndpoint,
  error: Error | null,
  tail: Buffer,
  requestId: string,
): string {
  const late = error instanceof UpstreamError && error.kind === 'timeout'
  const code = late ? 'provider_timeout' : 'provider_failed'
  const message = late
    ? 'The provider stalled in the middle of its answer. The answer is not complete.'
    : 'The provider broke off in the middle of its answer. The answer is not complete.'
  const separator = tail.length === 0 || tail.toString('latin1').endsWith('\n\n') ? '' : '\n\n'
  return separator + errorEvent({ type: 'api_error', code, message, param: null }, requestId)
}
