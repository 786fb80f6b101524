import type { Provider } from '../options.ts'
import type { Timeouts } from './client.ts'

export const timeoutsOf = (provider: Provider): Timeouts => ({
  connectMs: provider.connect_timeout_ms,
  firstByteMs: provider.first_byte_timeout_ms,
  idleMs: provider.idle_timeout_ms,
})

const urls = new WeakMap<Provider, Map<string, URL>>()

/**
 * Returns the URL of a path at a provider, made once for each of the few there are. `path`: may end with a
 * query.
 */
export function urlOf(provider: Provider, path: string): URL {
  const known = urls.get(provider) ?? new Map<string, URL>()
  urls.set(provider, known)
  const url = known.get(path) ?? new URL(provider.base_url.replace(/\/+$/, '') + path)
  known.set(path, url)
  return url
}
