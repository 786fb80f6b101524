import { DIALECT_BY_NAME, type DialectName } from '../dialects/registry.ts'
import type { LlmProvider } from '../options.ts'
import type { UpstreamTimeouts } from './answer.ts'
import { type FixedHeaders, fixedHeaders } from './headers.ts'

export interface ProviderConnection {
  readonly timeouts: UpstreamTimeouts
  /** The URL of each endpoint of its dialect, by `upstreamPath`. */
  readonly urls: ReadonlyMap<string, URL>
  readonly headers: FixedHeaders
  readonly query: ReadonlySet<string>
}

/** One for each dialect: a provider may speak another one's API as well. */
export type ProviderConnections = Readonly<Record<DialectName, ProviderConnection>>

export const connectionsTo = (provider: LlmProvider): ProviderConnections => ({
  openai: connectionTo(provider, 'openai'),
  anthropic: connectionTo(provider, 'anthropic'),
})

function connectionTo(provider: LlmProvider, dialect: DialectName): ProviderConnection {
  const { endpoints, query } = DIALECT_BY_NAME[dialect]
  return {
    timeouts: timeoutsOf(provider),
    headers: fixedHeaders(provider, dialect),
    query: new Set([...(provider.api === 'vertex' ? [] : query), ...provider.pass_query]),
    urls: new Map(endpoints.map(({ upstreamPath: path }) => [path, urlAtProvider(provider, path)])),
  }
}

export const timeoutsOf = (provider: LlmProvider): UpstreamTimeouts => ({
  connectMs: provider.connect_timeout_ms,
  firstByteMs: provider.first_byte_timeout_ms,
  idleMs: provider.idle_timeout_ms,
})

export const urlAtProvider = (provider: LlmProvider, path: string): URL => new URL(provider.base_url + path)

/** Returns the URL of an endpoint with those of a caller's parameters that go there, as written. */
export function withQuery(url: URL, query: string, passed: ReadonlySet<string>): URL {
  const kept = query.split('&').filter((pair) => passed.has(pair.split('=', 1)[0] ?? ''))
  if (kept.length === 0) return url
  const full = new URL(url)
  full.search = kept.join('&')
  return full
}
