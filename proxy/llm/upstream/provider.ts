import { DIALECT_BY_NAME } from '../dialects/registry.ts'
import type { LlmProvider } from '../options.ts'
import type { UpstreamTimeouts } from './answer.ts'
import { type FixedHeaders, fixedHeaders } from './headers.ts'

/** The parts of every request to a provider, made once for a configuration. */
export interface ProviderConnection {
  readonly timeouts: UpstreamTimeouts
  /** The URL of each endpoint of its dialect, by `upstreamPath`. */
  readonly urls: ReadonlyMap<string, URL>
  readonly headers: FixedHeaders
}

export function connectionTo(provider: LlmProvider): ProviderConnection {
  const { endpoints } = DIALECT_BY_NAME[provider.dialect]
  return {
    timeouts: timeoutsOf(provider),
    headers: fixedHeaders(provider),
    urls: new Map(endpoints.map(({ upstreamPath: path }) => [path, urlAtProvider(provider, path)])),
  }
}

export const timeoutsOf = (provider: LlmProvider): UpstreamTimeouts => ({
  connectMs: provider.connect_timeout_ms,
  firstByteMs: provider.first_byte_timeout_ms,
  idleMs: provider.idle_timeout_ms,
})

/** Returns the URL of a path at a provider. `path`: may end with a query. */
export const urlAtProvider = (provider: LlmProvider, path: string): URL =>
  new URL(provider.base_url.replace(/\/+$/, '') + path)
