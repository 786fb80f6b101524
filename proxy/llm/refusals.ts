import type { IncomingHttpHeaders } from 'node:http'
import { Refusal, type RefusalReason } from '../../plugins/refusal.ts'
import type { Provider } from './options.ts'
import { UpstreamError, type UpstreamErrorKind } from './upstream/error.ts'
import { responseHeaders } from './upstream/headers.ts'

const OF_KIND = {
  connect: 'provider_unreachable',
  reset: 'provider_failed',
  timeout: 'provider_timeout',
} as const satisfies Record<UpstreamErrorKind, RefusalReason>

/** What a caller is told when the call itself went wrong (WIRE.md §3). Anything else than an {@link UpstreamError} is a fault of ours. */
export function refusalOfError(error: unknown, provider: Provider): Refusal {
  if (!(error instanceof UpstreamError)) throw error
  return new Refusal(OF_KIND[error.kind], { detail: { provider: provider.name }, cause: error })
}

/**
 * What a caller is told of an answer that is not passed on: 401, 403, 429, 5xx, redirects, or null where the status is
 * the provider's own answer to this request. Nothing of its body is used: it may quote our key.
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

/** An answer whose content is not what its API answers with, e.g. an HTML page of something in between. */
export const unusableAnswer = (status: number, provider: Provider, cause?: unknown): Refusal =>
  new Refusal('provider_failed', { detail: { provider: provider.name, upstream_status: status }, cause })

export const notConfigured = (provider: Provider): Refusal =>
  new Refusal('provider_not_configured', { detail: { provider: provider.name } })

/** When to come back, and how much is left: whatever the provider said of it. */
function waitingHeaders(headers: IncomingHttpHeaders): Record<string, string> {
  return Object.fromEntries(
    Object.entries(responseHeaders(headers)).filter(
      ([name]) => name.startsWith('retry-after') || name.includes('ratelimit-'),
    ),
  )
}
