import type { IncomingHttpHeaders } from 'node:http'
import { Refusal, type RefusalReason } from '../../plugins/refusal.ts'
import type { DialectEndpoint } from './dialects/dialect.ts'
import type { Provider } from './options.ts'
import { UpstreamError, type UpstreamErrorKind } from './upstream/error.ts'
import { responseHeaders } from './upstream/headers.ts'

const OF_KIND = {
  connect: 'provider_unreachable',
  reset: 'provider_failed',
  timeout: 'provider_timeout',
} as const satisfies Record<UpstreamErrorKind, RefusalReason>

/**
 * Makes the refusal of a call that itself went wrong (docs/protocol.md#upstream-failures). Throws all but an
 * {@link UpstreamError}.
 */
export function refusalOfError(error: unknown, provider: Provider): Refusal {
  if (!(error instanceof UpstreamError)) throw error
  return new Refusal(OF_KIND[error.kind], { detail: { provider: provider.name }, cause: error })
}

/**
 * Makes the refusal in place of an answer that is not passed on: 401, 403, 429, 5xx, redirects; null where
 * the status is the provider's own answer to this request. Nothing of its body is used: it may quote our key.
 */
export function refusalOfStatus(
  status: number,
  headers: IncomingHttpHeaders,
  provider: Provider,
): Refusal | null {
  const detail = { provider: provider.name, upstream_status: status }
  if (status === 401 || status === 403) return new Refusal('provider_auth_failed', { detail })
  if (status === 429)
    return new Refusal('provider_rate_limited', { detail, headers: waitingHeaders(headers) })
  if (status < 200 || status >= 500 || (status >= 300 && status < 400)) {
    return new Refusal('provider_failed', { detail, headers: waitingHeaders(headers) })
  }
  return null
}

/** Refuses an answer whose content is none of its API's, e.g. an HTML page of something in between. */
export const unusableAnswer = (status: number, provider: Provider, cause?: unknown): Refusal =>
  new Refusal('provider_failed', { detail: { provider: provider.name, upstream_status: status }, cause })

export const notConfigured = ({ name, keyVariable }: Provider): Refusal =>
  new Refusal('provider_not_configured', {
    detail: { provider: name },
    ...(keyVariable !== undefined && {
      message: `The provider ${name} has no key here: set ${keyVariable} where the gateway is started, and start it again.`,
    }),
  })

/** Picks the headers in which the provider tells when to come back, and how much is left. */
function waitingHeaders(headers: IncomingHttpHeaders): Record<string, string> {
  return Object.fromEntries(
    Object.entries(responseHeaders(headers)).filter(
      ([name]) => name.startsWith('retry-after') || name.includes('ratelimit-'),
    ),
  )
}

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
    ? 'The provider stalled in the middle of its answer. What came so far is not the whole answer.'
    : 'The provider broke off in the middle of its answer. What came so far is not the whole answer.'
  const separator = tail.length === 0 || tail.toString('latin1').endsWith('\n\n') ? '' : '\n\n'
  return separator + errorEvent({ type: 'api_error', code, message, param: null }, requestId)
}
