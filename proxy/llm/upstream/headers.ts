import type { IncomingHttpHeaders } from 'node:http'
import { isApiKey } from '../../../plugins/secrets/api-key.ts'
import type { Provider } from '../options.ts'

/** What of a caller's request a provider may see. Everything else stays here (SECURITY T2, T3, threats 11 and 16). */
const REQUEST_NAMES: ReadonlySet<string> = new Set([
  'accept',
  'anthropic-beta',
  'anthropic-dangerous-direct-browser-access',
  'anthropic-version',
  'idempotency-key',
  'openai-beta',
  'session-id',
  'thread-id',
  'traceparent',
  'tracestate',
  'user-agent',
  'x-app',
  'x-claude-code-session-id',
  'x-client-request-id',
  'x-codex-turn-metadata',
])
const REQUEST_PREFIXES = ['x-stainless-']

/** Names of an account at the vendor: they belong to the caller's own key, so they go with it and never with ours. */
const ACCOUNT_NAMES = ['openai-organization', 'openai-project']

/** What of a provider's answer a caller may see (SECURITY threat 12). */
const RESPONSE_NAMES: ReadonlySet<string> = new Set([
  'content-encoding',
  'content-type',
  'openai-model',
  'openai-processing-ms',
  'openai-version',
  'retry-after',
  'retry-after-ms',
])
const RESPONSE_PREFIXES = ['x-ratelimit-', 'anthropic-ratelimit-']

/** The version an Anthropic provider is asked in when the caller names none. */
const ANTHROPIC_VERSION = '2023-06-01'

type HeaderMap = Readonly<Record<string, string>>

/**
 * The headers of a request to `provider`, built from nothing but an allow-list, with the provider's key.
 * `contentLength` is null for a request without a body.
 * Does NOT check that there is a key: {@link hasCredentials} does.
 */
export function requestHeaders(
  provider: Provider,
  caller: IncomingHttpHeaders,
  contentLength: number | null,
): HeaderMap {
  const headers = callerHeaders(caller)
  if (provider.dialect === 'anthropic') headers['anthropic-version'] = versionOf(caller)
  Object.assign(headers, credentials(provider, caller), fixedOf(provider))
  if (contentLength === null) return headers
  headers['content-type'] = 'application/json'
  headers['content-length'] = String(contentLength)
  return headers
}

const fixed = new WeakMap<Provider, HeaderMap>()

/** What every request to a provider carries, made once: a configuration does not change while it is in force. */
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

/** Whether a request to `provider` would carry any credentials, ours or, where passed through, the caller's. */
export function hasCredentials(provider: Provider, caller: IncomingHttpHeaders): boolean {
  if (provider.auth !== 'passthrough' && provider.api_key !== '') return true
  return Object.keys({ ...credentials(provider, caller), ...fixedOf(provider) }).some((name) =>
    CREDENTIAL_NAMES.has(name),
  )
}

const CREDENTIAL_NAMES: ReadonlySet<string> = new Set(['authorization', 'x-api-key', 'api-key'])

/** The headers of an answer that a caller may see, with the provider's request id under a name of its own. */
export function responseHeaders(upstream: IncomingHttpHeaders): Record<string, string> {
  const kept: Record<string, string> = {}
  for (const [name, value] of Object.entries(upstream)) {
    if (typeof value === 'string' && allowed(name, RESPONSE_NAMES, RESPONSE_PREFIXES)) kept[name] = value
  }
  const id = requestIdOf(upstream)
  if (id !== null) kept['x-upstream-request-id'] = id
  return kept
}

/** What the provider calls this request, or null where it says nothing sane. */
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

/** What the caller's `Connection` header says is not to be passed on (RFC 9110 §7.6.1). */
function connectionNames({ connection }: IncomingHttpHeaders): ReadonlySet<string> | null {
  // What nearly every client sends; it names no header.
  if (connection === undefined || connection === 'keep-alive') return null
  return new Set(connection.split(',').map((name) => name.trim().toLowerCase()))
}

function versionOf(caller: IncomingHttpHeaders): string {
  const version = caller['anthropic-version']
  return typeof version === 'string' && version !== '' ? version : ANTHROPIC_VERSION
}

function credentials(provider: Provider, caller: IncomingHttpHeaders): Record<string, string> {
  if (provider.auth === 'passthrough') return callerCredentials(caller)
  if (provider.api_key === '') return {}
  return provider.auth === 'bearer'
    ? { authorization: `Bearer ${provider.api_key}` }
    : { 'x-api-key': provider.api_key }
}

function callerCredentials(caller: IncomingHttpHeaders): Record<string, string> {
  const kept: Record<string, string> = {}
  const { authorization } = caller
  if (authorization !== undefined && !isForUs(authorization)) kept.authorization = authorization
  const names = ['x-api-key', ...ACCOUNT_NAMES]
  for (const name of names) {
    const value = caller[name]
    if (typeof value === 'string' && !isApiKey(value)) kept[name] = value
  }
  return kept
}

/**
 * Our own access tokens must not reach a provider: those of the DPoP scheme, and those that are bound to a certificate
 * or a key (`cnf`, RFC 7800), which a vendor's key never is; nor may our own API keys. Unreadable credentials are the caller's own affair.
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
