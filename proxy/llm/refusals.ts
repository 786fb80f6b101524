import type { JsonObject } from '../../db/support/json.ts'
import { STATUS_CODES } from '../../db/support/node-http.ts'
import {
  type ErrorType,
  type ProviderErrorFields,
  Refusal,
  type RefusalReason,
} from '../../plugins/refusal.ts'
import type { ErrorWords } from '../egress/error-words.ts'
import { ProxyTunnelError } from '../egress/proxy-tunnel.ts'
import type { DialectEndpoint } from './dialects/dialect.ts'
import type { TokensUnknown } from './dialects/stated-usage.ts'
import type { LlmProvider } from './options.ts'
import {
  type UpstreamAnswer,
  UpstreamError,
  type UpstreamErrorKind,
  type UpstreamHeaders,
} from './upstream/answer.ts'
import { requestIdOf, responseHeaders } from './upstream/headers.ts'
import { passedNames } from './upstream/passed-names.ts'

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
  /** A better sentence than the reason's own, for the caller; the provider's own words win. */
  readonly message?: string
  /** True if asking again cures nothing, although the status alone would let an SDK try. */
  readonly final?: boolean
  /** The reason why nobody knows what it cost. Absent: nothing. */
  readonly tokensUnknown?: TokensUnknown
  /** The provider's own words about it. Never rejects. */
  readonly words?: Promise<ErrorWords | null>
  readonly cause?: unknown
}

/** One provider that was asked, as outcome rows say it. No reason: its answer was passed on. */
interface ProviderAttempt extends JsonObject {
  readonly provider: string
  readonly status: number | null
  readonly reason?: RefusalReason
}

/** One provider that was passed over, as outcome rows say it: its breaker was open. */
interface SkippedProvider extends JsonObject {
  readonly provider: string
  readonly skipped: 'open'
}

export type AttemptRecord = ProviderAttempt | SkippedProvider

export const attemptOf = ({ provider, status, reason }: ProviderFailure): ProviderAttempt => ({
  provider: provider.name,
  status,
  reason,
})

/** Makes the refusal of a failure (docs/protocol.md#upstream-failures). `attempts`: all that were asked. */
export async function refusalOfFailure(
  failure: ProviderFailure,
  attempts: readonly AttemptRecord[],
): Promise<Refusal> {
  const { provider, reason, status, headers = {}, cause } = failure
  const words = await failure.words
  const ours = failure.message ?? missingKeyMessage(failure) ?? proxyMessage(failure)
  const { message = ours, ...said } = words ?? {}
  const requestId = requestIdOf(headers)
  const final = failure.final ?? (isSpent(said) || undefined)
  return new Refusal(reason, {
    ...(reason === 'provider_refused' && status !== null && { status }),
    ...(final !== undefined && { final }),
    detail: { provider: provider.name, ...(status !== null && { upstream_status: status }) },
    ...(message !== undefined && { message, said: { ...kindOf(failure), ...said } }),
    headers: reason === 'provider_auth_failed' ? {} : waitingHeaders(headers, provider),
    report: {
      attempts,
      ...(requestId !== null && { upstream_request_id: requestId }),
      ...(failure.tokensUnknown && { tokens_unknown: failure.tokensUnknown }),
    },
    cause,
  })
}

/** Says that a proxy is the cause, or that the one of the environment is not used. Never where it is. */
function proxyMessage({ reason, provider, cause }: ProviderFailure): string | undefined {
  const { name, proxyVariable: variable } = provider
  if (reason !== 'provider_unreachable') return undefined
  const inTunnel = cause instanceof Error && cause.cause instanceof ProxyTunnelError ? cause.cause : null
  if (inTunnel) {
    const { status } = inTunnel
    const why =
      status === null
        ? 'gave no connection'
        : `answered ${status}${status === 407 ? ': it wants credentials' : ''}`
    return `The provider ${name} could not be reached: the proxy before it ${why}. Tell the operator.`
  }
  if (provider.tunnel || variable === undefined) return undefined
  return `The provider ${name} could not be reached. ${variable} is set where the gateway runs, and not used: an operator can write proxy: env for this provider.`
}

/** Names the variable that would give a provider its key, never a value. */
function missingKeyMessage({ reason, provider }: ProviderFailure): string | undefined {
  const { name, keyVariable, credentials } = provider
  if (reason !== 'provider_not_configured') return undefined
  if (credentials)
    return `The key of the provider ${name} could not be fetched. Try again in a moment, or tell the operator.`
  return keyVariable === undefined
    ? undefined
    : `The provider ${name} has no key: set ${keyVariable} in the environment of the gateway, and restart it.`
}

const kindOf = ({ reason, status }: ProviderFailure): ProviderErrorFields =>
  reason === 'provider_refused' ? { type: KINDS[status ?? 0] ?? 'invalid_request_error' } : {}

const KINDS: Readonly<Record<number, ErrorType>> = {
  401: 'authentication_error',
  402: 'api_error',
  403: 'permission_error',
  404: 'not_found_error',
  429: 'rate_limit_error',
}

/** Recognises a provider's word for an account without money: no waiting fills it. */
const isSpent = ({ type = '', code = '' }: ProviderErrorFields): boolean => SPENT.test(`${type} ${code}`)

const SPENT = /insufficient_(?:quota|balance|funds|credits?)|exceeded_current_quota|billing_/i

/** Returns the failure of a call that itself went wrong. Throws all but an {@link UpstreamError}. */
export function failureOfError(error: unknown, provider: LlmProvider): ProviderFailure {
  if (!(error instanceof UpstreamError)) throw error
  const reason = REASON_OF_KIND[error.kind]
  return {
    provider,
    reason,
    status: null,
    cause: error,
    // It may be at work.
    ...(reason !== 'provider_unreachable' && { tokensUnknown: 'no_answer' as const }),
    ...(reason === 'provider_timeout' && { message: timeoutMessage(provider) }),
  }
}

const timeoutMessage = ({ name, first_byte_timeout_ms: ms }: LlmProvider): string =>
  `The provider ${name} did not begin to answer within ${ms / 1000} s. Do not send the same again: it may still be at work on it. Ask for a stream or for less, or ask an operator to raise first_byte_timeout_ms.`

type FailedAnswer = Pick<ProviderFailure, 'provider'> & Pick<UpstreamAnswer, 'status' | 'headers'>

/**
 * Returns the failure that an answer is by its status: of a redirect, of our key or account, or of the
 * provider. Null if it may be the provider's own answer to this request. `isCallerKey`: it was asked with the
 * caller's own key.
 */
export function failureOfAnswer(came: FailedAnswer, isCallerKey: boolean): ProviderFailure | null {
  const { provider, status } = came
  if (status >= 300 && status < 400) return redirectFailure(came)
  if (status === 407 || (status === 401 && !isCallerKey)) return keyFailure(provider, status)
  if (status === 402 && !isCallerKey) {
    const message = `The provider ${provider.name} wants payment for this gateway's account (${status}). Tell the operator.`
    return { ...came, reason: 'provider_refused', final: true, message }
  }
  if (status < 500 && (status !== 429 || isCallerKey)) return null
  const reason = REASON_OF_STATUS[status] ?? 'provider_failed'
  // No later attempt can be answered otherwise, although SDKs try again at any 5xx.
  return { ...came, reason, ...((status === 501 || status === 505) && { final: true }) }
}

/**
 * Returns the failure of a stream whose first event says that it failed. `status`: the one that says the same;
 * `stated`: the one that came.
 */
export function failureOfFirstEvent(
  { provider, status, headers }: FailedAnswer,
  stated: number,
): ProviderFailure {
  const reason = REASON_OF_STATUS[status] ?? 'provider_failed'
  return { provider, reason, status: stated, headers, tokensUnknown: 'failed' }
}

const REASON_OF_STATUS: Readonly<Record<number, RefusalReason>> = {
  429: 'provider_rate_limited',
  529: 'provider_overloaded',
}

/** Never followed: it would carry key and prompt elsewhere. */
const redirectFailure = (came: FailedAnswer): ProviderFailure => {
  const { provider, status, headers } = came
  return unusableAnswer(came, {
    message: `The provider ${provider.name} redirects this call (${status}), and the gateway follows no redirect. An operator must correct its base_url.`,
    cause: new Error(`redirected to ${redirectPlace(provider, headers.location ?? '')}`),
  })
}

/** Another host is the provider's word, and stands in no log. */
function redirectPlace({ base_url: base }: LlmProvider, location: string): string {
  const to = URL.parse(location, base)
  return to?.hostname === new URL(base).hostname ? to.origin : 'another host'
}

/** Returns the failure of an answer that may not go on, or is none of the provider's API. */
export const unusableAnswer = (
  { provider, status, headers }: FailedAnswer,
  more: Pick<ProviderFailure, 'cause' | 'message'>,
  // It has been worked on, and paid: the next one would be the same.
): ProviderFailure => ({
  ...{ provider, reason: 'provider_failed', status, headers, final: true },
  ...(status < 300 && { tokensUnknown: 'unreadable' }),
  ...more,
})

/** Returns the failure of a whole answer of status 2xx that is no JSON and no event stream. */
export const foreignAnswer = (came: FailedAnswer): ProviderFailure => {
  const { provider, status, headers } = came
  const [, type = 'no content type'] =
    /^([\w.+-]{1,64}\/[\w.+-]{1,64})/.exec(headers['content-type'] ?? '') ?? []
  const message = `The provider ${provider.name} answered ${status} with ${type} in place of JSON or an event stream. An operator should check its base_url.`
  return unusableAnswer(came, { message })
}

/** Returns the failure of an answer in an encoding that cannot be looked into. */
export const unreadAnswer = (came: FailedAnswer): ProviderFailure =>
  unusableAnswer(came, {
    message: `The answer of the provider ${came.provider.name} cannot be read: it is compressed, which was not asked for, or is not in UTF-8. An operator should check what stands between.`,
  })

/** Returns the failure of a request that a provider refuses without words that can be passed on. */
export const wordlessRefusal = (
  { provider, status, headers }: FailedAnswer,
  cause?: unknown,
): ProviderFailure => ({
  provider,
  reason: 'provider_refused',
  status,
  headers,
  final: !isTransientStatus(status),
  message:
    `The provider ${provider.name} refused this request: ${status} ${STATUS_CODES[status] ?? ''}`.trimEnd() +
    `, without words that can be passed on.${HINTS[status] ?? ''}`,
  cause,
})

const HINTS: Readonly<Record<number, string>> = {
  404: ' It may not know this model, or not offer this endpoint.',
  413: ' Send less.',
}

/** Returns the failure of a key, or of the account that it belongs to: its words are not the caller's. */
export const keyFailure = (provider: LlmProvider, status: number): ProviderFailure => ({
  provider,
  reason: 'provider_auth_failed',
  status,
  ...(status !== 401 && {
    message: `The provider ${provider.name} refused this gateway's key, account or address (${status}). Tell the operator.`,
  }),
})

/** Tells whether a status says that the same request may well be answered later, or by another provider. */
const isTransientStatus = (status: number): boolean =>
  status === 408 || status === 409 || status === 429 || status >= 500

/** Tells whether an answer of a status is left for another provider's: also that of a spent account. */
export const isForTheNext = (status: number): boolean => status === 402 || isTransientStatus(status)

export const notConfiguredFailure = (provider: LlmProvider): ProviderFailure => ({
  provider,
  reason: 'provider_not_configured',
  status: null,
})

/** Picks the headers that say when to come back, and those that the operator lets through. */
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
 * (docs/protocol.md#clients). `tail`: the last bytes that were sent; an event that was cut in half is closed
 * first.
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
