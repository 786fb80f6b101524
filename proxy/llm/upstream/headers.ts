import type { IncomingHttpHeaders } from 'node:http'
import { isApiKey } from '../../../plugins/secrets/api-key.ts'
import { DIALECT_BY_NAME, DIALECTS } from '../dialects/registry.ts'
import type { Provider } from '../options.ts'

/**
 * The headers of a caller's request that a provider may see. All others stay here (docs/threats.md#t2, #t3,
 * #threat-11 and #threat-16).
 */
const REQUEST_NAMES: ReadonlySet<string> = new Set([
  'accept',
  'idempotency-key',
  'session-id',
  'thread-id',
  'traceparent',
  'tracestate',
  'user-agent',
  'x-app',
  'x-claude-code-session-id',
  'x-client-request-id',
  'x-codex-turn-metadata',
  ...DIALECTS.flatMap(({ headers }) => headers.request),
])
const REQUEST_PREFIXES = ['x-stainless-']

/** The headers of a provider's answer that a caller may see (docs/threats.md#threat-12). */
const RESPONSE_NAMES: ReadonlySet<string> = new Set([
  'content-encoding',
  'content-type',
  'retry-after',
  'retry-after-ms',
  ...DIALECTS.flatMap(({ headers }) => headers.response),
])
const RESPONSE_PREFIXES = ['x-ratelimit-', ...DIALECTS.flatMap(({ headers }) => headers.responsePrefixes)]

const KEY_NAMES: ReadonlySet<string> = new Set(DIALECTS.map(({ key }) => key.header))

/**
 * Names of an account at the vendor: they belong to the caller's own key, so they go with it and never with
 * ours.
 */
const ACCOUNT_NAMES = DIALECTS.flatMap(({ headers }) => headers.account)

type HeaderMap = Readonly<Record<string, string>>

/**
 * Makes the headers of a request to `provider`, built from nothing but an allow-list, with the provider's
 * key. `contentLength` is null for a request without a body. Does NOT check that there is a key: {@link
 * hasCredentials} does.
 */
export function requestHeaders(
  provider: Provider,
  caller: IncomingHttpHeaders,
  contentLength: number | null,
): HeaderMap {
  const headers = callerHeaders(caller)
  for (const [name, value] of Object.entries(DIALECT_BY_NAME[provider.dialect].headers.defaults)) {
    headers[name] = textOf(caller[name]) || value
  }
  Object.assign(headers, credentials(provider, caller), fixedOf(provider))
  if (contentLength === null) return headers
  headers['content-type'] = 'application/json'
  headers['content-length'] = String(contentLength)
  return headers
}

const fixed = new WeakMap<Provider, HeaderMap>()

/**
 * Makes the headers that every request to a provider carries, once: a configuration does not change while it
 * is in force.
 */
function fixedOf(provider: Provider): HeaderMap {
  const known = fixed.get(provider)
  if (known) return known
  const made = {
    ...lowerCased(provider.headers),
    // An answer that is not compressed can be read for its usage as it passes.
    'accept-encoding': 'identity',
    host: new URL(provider.base_url).host,
  }
  fixed.set(provider, made)
  return made
}

/**
 * Tells if a request to `provider` would carry any credentials: ours or, where passed through, the caller's.
 */
export function hasCredentials(provider: Provider, caller: IncomingHttpHeaders): boolean {
  if (provider.auth !== 'passthrough' && provider.api_key !== '') return true
  return Object.keys({ ...credentials(provider, caller), ...fixedOf(provider) }).some((name) =>
    CREDENTIAL_NAMES.has(name),
  )
}

const CREDENTIAL_NAMES: ReadonlySet<string> = new Set(['authorization', 'api-key', ...KEY_NAMES])

/**
 * Picks the headers of an answer that a caller may see, with the provider's request id under a name of its
 * own.
 */
export function responseHeaders(upstream: IncomingHttpHeaders): Record<string, string> {
  const kept: Record<string, string> = {}
  for (const [name, value] of Object.entries(upstream)) {
    if (typeof value === 'string' && allowed(name, RESPONSE_NAMES, RESPONSE_PREFIXES)) kept[name] = value
  }
  const id = requestIdOf(upstream)
  if (id !== null) kept['x-upstream-request-id'] = id
  return kept
}

/** Returns the provider's own id of this request, or null where it states none that is sane. */
export function requestIdOf(upstream: IncomingHttpHeaders): string | null {
  const id = upstream['x-request-id'] ?? upstream['request-id']
  return typeof id === 'string' && /^[\x21-\x7e]{1,128}$/.test(id) ? id : null
}

function callerHeaders(caller: IncomingHttpHeaders): Record<string, string> {
  const kept: Record<string, string> = {}
  const nominated = connectionNames(caller)
  for (const name in caller) {
    const value = caller[name]
    if (typeof value !== 'string' || !allowed(name, REQUEST_NAMES, REQUEST_PREFIXES)) continue
    if (!nominated?.has(name)) kept[name] = value
  }
  return kept
}

/** Returns the names that the caller's `Connection` header forbids to pass on (RFC 9110 §7.6.1). */
function connectionNames({ connection }: IncomingHttpHeaders): ReadonlySet<string> | null {
  // What nearly every client sends; it names no header.
  if (connection === undefined || connection === 'keep-alive') return null
  return new Set(connection.split(',').map((name) => name.trim().toLowerCase()))
}

const textOf = (value: string | string[] | undefined): string => (typeof value === 'string' ? value : '')

function credentials(provider: Provider, caller: IncomingHttpHeaders): Record<string, string> {
  if (provider.auth === 'passthrough') return callerCredentials(caller)
  if (provider.api_key === '') return {}
  return provider.auth === 'bearer'
    ? { authorization: `Bearer ${provider.api_key}` }
    : { [DIALECT_BY_NAME[provider.dialect].key.header]: provider.api_key }
}

function callerCredentials(caller: IncomingHttpHeaders): Record<string, string> {
  const kept: Record<string, string> = {}
  const { authorization } = caller
  if (authorization !== undefined && !isForUs(authorization)) kept.authorization = authorization
  for (const name of [...KEY_NAMES, ...ACCOUNT_NAMES]) {
    const value = caller[name]
    if (typeof value === 'string' && !isApiKey(value)) kept[name] = value
  }
  return kept
}

/**
 * Recognises our own access tokens, which must not reach a provider: those of the DPoP scheme, and those that
 * are bound to a certificate or a key (`cnf`, RFC 7800), which a vendor's key never is; nor may our own API
 * keys. Unreadable credentials are the caller's own affair.
 */
function isForUs(authorization: string): boolean {
  const [scheme = '', token = ''] = authorization.trim().split(/\s+/)
  if (scheme.toLowerCase() === 'dpop' || isApiKey(token)) return true
  const [, claims = ''] = token.split('.')
  return Buffer.from(claims, 'base64url').includes('"cnf"')
}

const allowed = (name: string, names: ReadonlySet<string>, prefixes: readonly string[]): boolean =>
  names.has(name) || prefixes.some((prefix) => name.startsWith(prefix))

function lowerCased(headers: HeaderMap): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]))
}
