import type { ErrorWords } from '../../egress/error-words.ts'
import { connectionCause } from '../../egress/error-words.ts'
import { LEGACY_VERSIONS, MODERN_VERSION } from '../protocol/versions.ts'

/**
 * `unreachable`: no connection, a refused address, or one that broke before an answer. `timeout`: no answer
 * in time. `too_large`: an answer past the limits. `failed`: anything else that is not the answer we asked
 * for.
 */
export type FailureKind = 'unreachable' | 'timeout' | 'failed' | 'too_large'

/** The remedy of a failure that has done nothing: another session, or the other era. */
export type FailureRemedy = 'new_session' | 'other_era'

export interface HttpErrorReport {
  /** The server's own words; null if there are none that may be passed on. */
  readonly words: ErrorWords | null
  /** The headers that say when to come back, and how much is left. */
  readonly headers: Readonly<Record<string, string>>
  /** The server's id of the request, or null. */
  readonly requestId: string | null
}

export interface PassedLimit {
  readonly setting: 'answer_timeout_ms' | 'total_timeout_ms'
  readonly ms: number
}

interface McpErrorOptions {
  readonly cause?: unknown
  readonly status?: number
  readonly cure?: FailureRemedy
  readonly told?: HttpErrorReport
  /** True: the server took the request, and nobody knows what became of it. Default false. */
  readonly outcomeUnknown?: boolean
  readonly limit?: PassedLimit
}

/** A failure between us and an MCP server. The message is for the log: no headers, bodies or secrets. */
export class McpUpstreamError extends Error {
  readonly kind: FailureKind
  readonly status: number | null
  readonly cure: FailureRemedy | null
  readonly outcomeUnknown: boolean
  readonly told: HttpErrorReport | null
  readonly limit: PassedLimit | null

  constructor(kind: FailureKind, message: string, options: McpErrorOptions = {}) {
    const { cause, status, cure, told = null, outcomeUnknown = false, limit = null } = options
    super(`mcp upstream ${kind}: ${message}`, { cause })
    this.kind = kind
    this.status = status ?? null
    this.cure = cure ?? null
    this.outcomeUnknown = outcomeUnknown
    this.limit = limit
    this.told = told
  }
}

export const mcpTimeout = (what: string, limit: PassedLimit): McpUpstreamError =>
  new McpUpstreamError('timeout', `${what} within ${limit.ms} ms (${limit.setting})`, { limit })

export const limitSentence = ({ setting, ms }: PassedLimit): string =>
  `The MCP server ${setting === 'answer_timeout_ms' ? `said nothing for ${ms / 1000} s` : `did not answer in full within ${ms / 1000} s`}. Do not send the same again: it may still be at work on it, or have done it. Ask for less, or ask an operator to raise ${setting}.`

export const mcpUpstreamFailure = (message: string, options: McpErrorOptions = {}): McpUpstreamError =>
  new McpUpstreamError('failed', message, options)

export function connectionProblem(code: string): string {
  const cause = connectionCause(code, MCP_SETTINGS)
  return cause === null ? code : `${cause} (${code})`
}

const MCP_SETTINGS = {
  url: 'endpoint_url',
  certificate: 'if it demands a client certificate, use auth_type mtls and one that it accepts',
} as const

interface OddAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>
  readonly endpoint: string
  /** The request had these credentials. */
  readonly credentials: 'none' | 'ours' | 'account'
  /** Tells of a text that it may be repeated. */
  readonly isHarmless: (text: string) => boolean
}

const MAX_PATH = 200

/**
 * Says why an answer of that status is none: cause and cure, and nothing of it but the path of a redirect.
 */
export function statusProblem(answer: OddAnswer): string {
  const { status } = answer
  if (status >= 300 && status < 400) return redirectProblem(answer)
  if (status === 401 || status === 403) return credentialsProblem(answer)
  const cause = STATUS_CAUSES.get(status)
  return cause === undefined ? `HTTP status ${status}` : `HTTP status ${status}: ${cause}`
}

const OTHER_TRANSPORT =
  'a server of the older HTTP+SSE transport (2024-11-05) answers so, and is not supported: register its Streamable HTTP endpoint'

const STATUS_CAUSES: ReadonlyMap<number, string> = new Map([
  [202, `a request needs an answer; ${OTHER_TRANSPORT}`],
  [404, `there is no MCP endpoint at this path: correct endpoint_url; ${OTHER_TRANSPORT}`],
  [405, `no POST is taken at this path: correct endpoint_url; ${OTHER_TRANSPORT}`],
  [406, 'it does not answer with JSON or an event stream: it is no MCP endpoint'],
  [415, 'it does not take JSON: it is no MCP endpoint'],
  [421, 'it does not serve this host name: correct the host in endpoint_url, or what the server allows'],
  [429, 'it has had too many requests: raise its limit, or ask less often'],
  [502, 'a proxy before it does not reach it'],
  [503, 'it is not ready, or overloaded'],
  [504, 'a proxy before it had no answer in time'],
])

function redirectProblem({ status, headers, endpoint, isHarmless }: OddAnswer): string {
  const { location } = headers
  const [from, to] = [
    URL.parse(endpoint),
    typeof location === 'string' ? URL.parse(location, endpoint) : null,
  ]
  const told = `it redirects (HTTP status ${status})`
  if (!from || !to) return `${told}, which is not followed: register the URL that it leads to`
  if (from.host !== to.host && from.hostname !== to.hostname)
    return `${told} to another host, which is not followed: register the URL of the server itself`
  const place = to.origin === from.origin ? to.pathname : `${to.origin}${to.pathname}`
  const isTold = place.length <= MAX_PATH && isHarmless(place)
  return `${told} to ${isTold ? place : 'another path'}, which is not followed: register that URL`
}

function credentialsProblem({ status, headers, credentials }: OddAnswer): string {
  const asks = headers['www-authenticate']
  const isOauth = typeof asks === 'string' && /\bresource_metadata\b/i.test(asks)
  const told = `HTTP status ${status}`
  if (credentials === 'account') return `the upstream refused the account of the call (${told})`
  if (credentials === 'ours')
    return `the upstream refused this gateway's credentials (${told}): renew its secret`
  const cure = 'set auth_type and auth_secret_ref, or auth_type oauth'
  return isOauth
    ? `the upstream demands an OAuth token (${told}): ${cure}`
    : `the upstream demands credentials (${told}): ${cure}`
}

/** Says that a server speaks no revision of the protocol that is spoken here. `versions`: those it names. */
export function unknownRevisions(versions: readonly unknown[]): string {
  const dated = versions.filter((one) => typeof one === 'string' && /^\d{4}-\d{2}-\d{2}$/.test(one))
  const names = dated.length === 0 ? '' : ` (it names ${dated.slice(0, 8).join(', ')})`
  const known = [MODERN_VERSION, ...LEGACY_VERSIONS].join(', ')
  return `it speaks no revision of the protocol that this gateway knows${names}: update it to one that speaks ${known}`
}
