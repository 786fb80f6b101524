import type { IncomingHttpHeaders } from 'node:http'
import { isApiKey } from '../../../plugins/secrets/api-key.ts'
import {
  MIN_TRACED_CHARACTERS,
  quotesSecret,
  type SecretTraces,
  secretTraces,
} from '../../../plugins/secrets/traces.ts'
import { DIALECT_BY_NAME, DIALECTS } from '../dialects/registry.ts'
import type { LlmProvider } from '../options.ts'
import { keyHeaderOf } from '../servers.ts'
import type { UpstreamHeaders } from './answer.ts'
import { type IsPassedName, passedNames } from './passed-names.ts'

/** The headers of a request that a provider may see (docs/threats.md#t2, #t3, #threat-11, #threat-16). */
const REQUEST_NAMES: ReadonlySet<string> = new Set([
  'accept',
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
const REQUEST_PREFIX = 'x-stainless-'

/** The headers of a provider's answer that a caller may see (docs/threats.md#threat-12). */
const RESPONSE_NAMES: ReadonlySet<string> = new Set([
  'content-type',
  'retry-after',
  'retry-after-ms',
  // SDKs do not send again what a retry cannot cure, such as a call past a quota.
  'x-should-retry',
  ...DIALECTS.flatMap(({ headers }) => headers.response),
])
const RESPONSE_PREFIXES = [
  'x-ratelimit-',
  'ratelimit',
  ...DIALECTS.flatMap(({ headers }) => headers.responsePrefixes),
]
// One expression: it is asked of each header of each answer.
const RESPONSE_PREFIX = new RegExp(`^(?:${RESPONSE_PREFIXES.join('|')})`)

const KEY_NAMES: ReadonlySet<string> = new Set(DIALECTS.map(({ key }) => key.header))

/** Names of an account at the vendor: they go with the caller's own key and never with ours. */
const ACCOUNT_NAMES = DIALECTS.flatMap(({ headers }) => headers.account)

/**
 * Stands before the vendor's credentials if `authorization` is a token of ours (`scripts/client/signing/signed-call.ts`).
 */
const VENDOR_PREFIX = 'sallyport-'

type HeaderMap = Readonly<Record<string, string>>

/** The headers that every request to a provider carries, made once. */
export interface FixedHeaders {
  /** Names and values in turn: of the connection, the operator's file, and our key. */
  readonly list: readonly string[]
  /** Sent if the caller does not name them. */
  readonly defaults: readonly (readonly [name: string, value: string])[]
  /** The names of all of these: no header of a caller takes the place of one. */
  readonly names: ReadonlySet<string>
  /** True: the caller's own credentials go with them. */
  readonly passthrough: boolean
  /** True: they are the only ones, so a refusal of the key is the caller's affair. */
  readonly callerKey: boolean
  /** Traces of the secrets among these headers, which no answer may quote. */
  readonly traces: SecretTraces
  /** Traces of shorter ones too, which no header of an answer may quote, and no name of a model. */
  readonly credentials: SecretTraces
  /** Further headers of callers that the operator lets through; null: none. */
  readonly passes: IsPassedName | null
  /** Further headers of answers that the operator lets through; null: none. */
  readonly returns: IsPassedName | null
}

/** A shorter key may be a word that models use: `lm-studio`, `sk-no-key-required`. Characters. */
const MIN_KEY = 20

/** `dialect`: that of the request. Default: the provider's own. */
export function fixedHeaders(provider: LlmProvider, dialect = provider.dialect): FixedHeaders {
  const ours: HeaderMap = {
    host: new URL(provider.base_url).host,
    ...credentials(provider),
    ...lowerCased(provider.headers),
    // An answer that is not compressed can be read for its usage as it passes.
    'accept-encoding': 'identity',
  }
  const { headers } = DIALECT_BY_NAME[dialect]
  // There they stand in the body.
  const left = provider.api === 'vertex' ? headers.request : []
  const defaults = Object.entries(headers.defaults).filter(
    ([name]) => !(name in ours) && !left.includes(name),
  )
  return {
    list: Object.entries(ours).flat(),
    defaults,
    names: new Set([...Object.keys(ours), ...defaults.map(([name]) => name), ...left]),
    passthrough: provider.auth === 'passthrough',
    callerKey: usesCallerKey(provider),
    traces: secretTraces(credentialsIn(provider, MIN_KEY)),
    credentials: secretTraces(credentialsIn(provider, MIN_TRACED_CHARACTERS)),
    passes: passedNames('pass_headers', provider.pass_headers),
    returns: passedNames('pass_answer_headers', provider.pass_answer_headers),
  }
}

/** Lists the secrets of a provider: its key, and the words of the headers that the operator's file sets. */
export function secretsIn({
  api_key: key,
  headers,
}: Pick<LlmProvider, 'api_key' | 'headers'>): readonly string[] {
  const words = Object.values(headers).flatMap((text) => {
    const [, basic = ''] = /^basic\s+(\S+)$/i.exec(text) ?? []
    const login = Buffer.from(basic, 'base64').toString('latin1')
    return [...text.split(/\s+/), login, login.slice(login.indexOf(':') + 1)]
  })
  return [key, ...words.filter((word) => word.length >= MIN_TRACED_CHARACTERS)]
}

function credentialsIn({ api_key, headers }: LlmProvider, least: number): readonly string[] {
  const carrying = Object.entries(headers).filter(
    ([name, value]) => CREDENTIAL_NAME.test(name) || CREDENTIAL_VALUE.test(value),
  )
  const secrets = secretsIn({ api_key, headers: Object.fromEntries(carrying) })
  return secrets.filter(({ length }) => length >= least)
}

const CREDENTIAL_NAME = /auth|cookie|credential|key|password|secret|token/i
const CREDENTIAL_VALUE = /^(?:basic|bearer|token)\s/i

/**
 * Makes the headers of a request to a provider, names and values in turn, built from nothing but an
 * allow-list, with the provider's key. `contentLength`: null for a request without a body. `idempotencyKey`:
 * in place of the caller's own. Does NOT check that there is a key: {@link hasCredentials} does.
 */
export function providerRequestHeaders(
  fixed: FixedHeaders,
  caller: IncomingHttpHeaders,
  contentLength: number | null,
  idempotencyKey: string | null = null,
): readonly string[] {
  const headers = [...fixed.list]
  const nominated = connectionNames(caller)
  for (const name in caller) {
    const value = caller[name]
    if (typeof value !== 'string' || fixed.names.has(name)) continue
    const goes = maySee(name) || (fixed.passes?.(name) && !isOwnCredential(value))
    if (goes && !nominated?.has(name)) headers.push(name, value)
  }
  if (idempotencyKey !== null && !fixed.names.has(IDEMPOTENCY) && !nominated?.has(IDEMPOTENCY)) {
    headers.push(IDEMPOTENCY, idempotencyKey)
  }
  for (const [name, value] of fixed.defaults) {
    headers.push(name, nominated?.has(name) ? value : textOf(caller[name]) || value)
  }
  if (fixed.passthrough) {
    for (const [name, value] of Object.entries(callerCredentials(caller)))
      if (!fixed.names.has(name) && !fixed.passes?.(name)) headers.push(name, value)
  }
  if (contentLength !== null)
    headers.push('content-type', 'application/json', 'content-length', String(contentLength))
  return headers
}

const IDEMPOTENCY = 'idempotency-key'

const maySee = (name: string): boolean => REQUEST_NAMES.has(name) || name.startsWith(REQUEST_PREFIX)

/**
 * Tells if a request to `provider` would carry any credentials: ours or, if passed through, the caller's. Does
 * NOT tell if those that are fetched can be.
 */
export function hasCredentials(provider: LlmProvider, caller: IncomingHttpHeaders): boolean {
  if (provider.credentials || (provider.auth !== 'passthrough' && provider.api_key !== '')) return true
  const passed = provider.auth === 'passthrough' ? callerCredentials(caller) : {}
  return Object.keys({ ...passed, ...lowerCased(provider.headers) }).some((name) =>
    CREDENTIAL_NAMES.has(name),
  )
}

/** Tells if a provider is called with the caller's own key, and no other. */
export const usesCallerKey = ({ auth, headers }: LlmProvider): boolean =>
  auth === 'passthrough' && !Object.keys(lowerCased(headers)).some((name) => CREDENTIAL_NAMES.has(name))

const CREDENTIAL_NAMES: ReadonlySet<string> = new Set(['authorization', 'api-key', ...KEY_NAMES])

/** Headers that do not become a list if they stand twice. */
const SINGLE: ReadonlySet<string> = new Set(['content-length', 'content-type', 'retry-after'])

/** Makes texts of an answer's headers: one that stands several times is joined, or its first counts. */
export function joinHeaders(headers: Record<string, string | string[] | undefined>): UpstreamHeaders {
  for (const name in headers) {
    const value = headers[name]
    if (Array.isArray(value)) headers[name] = SINGLE.has(name) ? value[0] : value.join(', ')
  }
  // Each is a text by now.
  return headers as UpstreamHeaders
}

export const isJsonAnswer = (headers: UpstreamHeaders): boolean =>
  /^application\/([\w.+-]+\+)?json\s*(;|$)/i.test(headers['content-type'] ?? '')

/** Accepts JSON and server-sent events that can be read (docs/threats.md#threat-38). */
export const isApiContent = (headers: UpstreamHeaders): boolean =>
  API_CONTENT.test(headers['content-type'] ?? '') && isReadableContent(headers)

const API_CONTENT = /^(application\/([\w.+-]+\+)?json|text\/event-stream)\s*(;|$)/i

export const isEventStream = (headers: UpstreamHeaders): boolean =>
  /^text\/event-stream/i.test(headers['content-type'] ?? '')

export function isReadableContent({
  'content-encoding': encoding,
  'content-type': type = '',
}: UpstreamHeaders): boolean {
  if (encoding !== undefined && !PLAIN.test(encoding)) return false
  const [, charset] = CHARSET.exec(type) ?? []
  return charset === undefined || READABLE.test(charset)
}

const PLAIN = /^[\s,]*(?:identity[\s,]*)?$/i
const CHARSET = /;\s*charset\s*=\s*["']?([^\s"';]*)/i
const READABLE = /^(?:utf-?8|(?:us-)?ascii|iso-8859-\d+|iso8859-\d+|latin-?\d|windows-125\d|cp125\d|)$/i

/** Bytes. A JSON answer of no more is handed over whole: so little costs less than its connection does. */
const MAX_SHORT_ANSWER = 16_384

/** Tells whether a body is said to be JSON, and short enough to be handed over whole. */
export const isShortJson = (headers: UpstreamHeaders): boolean =>
  Number(headers['content-length']) <= MAX_SHORT_ANSWER && isJsonAnswer(headers)

/** Picks the headers of an answer for the caller. `returns`: what the operator lets through. */
export function responseHeaders(
  upstream: UpstreamHeaders,
  returns: IsPassedName | null = null,
): Record<string, string> {
  const kept: Record<string, string> = {}
  for (const name in upstream) {
    const value = upstream[name]
    if (value === undefined || (name === 'x-should-retry' && !ADVICE.test(value))) continue
    if (RESPONSE_NAMES.has(name) || RESPONSE_PREFIX.test(name) || returns?.(name)) kept[name] = value
  }
  const id = requestIdOf(upstream)
  if (id !== null) kept['x-upstream-request-id'] = id
  return kept
}

const ADVICE = /^(?:true|false)$/

export function requestIdOf(upstream: UpstreamHeaders): string | null {
  const id = upstream['x-request-id'] ?? upstream['request-id']
  return id !== undefined && /^[\x21-\x7e]{1,128}$/.test(id) ? id : null
}

export function withoutSecrets(
  headers: UpstreamHeaders,
  { credentials, returns }: FixedHeaders,
): UpstreamHeaders {
  if (credentials.length === 0) return headers
  const isDoubtful = (name: string, value = ''): boolean =>
    value.length >= MIN_TRACED_CHARACTERS &&
    !PLAIN_TYPE.test(value) &&
    (RESPONSE_NAMES.has(name) ||
      RESPONSE_PREFIX.test(name) ||
      READ_HERE.has(name) ||
      returns?.(name) === true)
  const quoting = Object.entries(headers).filter(
    ([name, value]) => isDoubtful(name, value) && quotesSecret(credentials, Buffer.from(value ?? '')),
  )
  if (quoting.length === 0) return headers
  const names = new Set(quoting.map(([name]) => name))
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !names.has(name)))
}

const READ_HERE: ReadonlySet<string> = new Set(['location', 'request-id', 'x-request-id'])
const PLAIN_TYPE = /^(?:application\/json|text\/event-stream)(?:; ?charset=utf-8)?$/i

/** Returns the names that the caller's `Connection` header forbids to pass on (RFC 9110 §7.6.1). */
function connectionNames({ connection }: IncomingHttpHeaders): ReadonlySet<string> | null {
  // Nearly every client sends this; it names no header.
  if (connection === undefined || connection === 'keep-alive') return null
  return new Set(connection.split(',').map((name) => name.trim().toLowerCase()))
}

const textOf = (value: string | string[] | undefined): string => (typeof value === 'string' ? value : '')

function credentials(provider: LlmProvider): HeaderMap {
  if (provider.auth === 'passthrough' || provider.api_key === '') return {}
  return provider.auth === 'bearer'
    ? { authorization: `Bearer ${provider.api_key}` }
    : { [keyHeaderOf(provider)]: provider.api_key }
}

function callerCredentials(caller: IncomingHttpHeaders): Record<string, string> {
  const kept: Record<string, string> = {}
  const authorization = [caller.authorization, caller[`${VENDOR_PREFIX}authorization`]].find(
    (value) => typeof value === 'string' && !isOwnCredential(value),
  )
  if (typeof authorization === 'string') kept.authorization = authorization
  for (const name of [...KEY_NAMES, ...ACCOUNT_NAMES]) {
    const value = caller[name] ?? caller[VENDOR_PREFIX + name]
    if (typeof value === 'string' && !isApiKey(value)) kept[name] = value
  }
  return kept
}

/** Recognises our own tokens (DPoP, or `cnf`, RFC 7800) and API keys: no provider gets them. */
function isOwnCredential(authorization: string): boolean {
  const [scheme = '', token = ''] = authorization.trim().split(/\s+/)
  if (scheme.toLowerCase() === 'dpop' || isApiKey(token)) return true
  const [, claims = ''] = token.split('.')
  return Buffer.from(claims, 'base64url').includes('"cnf"')
}

function lowerCased(headers: HeaderMap): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]))
}
