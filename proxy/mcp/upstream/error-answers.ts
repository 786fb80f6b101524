import { isObject } from '../../../db/support/json.ts'
import { type ErrorWords, parseErrorWords } from '../../egress/error-words.ts'
import { HEADER_MISMATCH, UNSUPPORTED_VERSION } from '../protocol/json-text.ts'
import type { ExpectedAnswer } from './answers.ts'
import { echoesSecret, type UpstreamCredentials } from './connections.ts'
import { type HttpErrorReport, type McpUpstreamError, mcpUpstreamFailure, statusProblem } from './errors.ts'
import type { McpResponseHead, ResponseHeaders } from './exchange.ts'
import { errorCodeOf, holdsSecret, kindOfMessage, responseResult, type UpstreamMessage } from './message.ts'

/** The body of an HTTP error. `message`: it, if it is a JSON-RPC message. */
interface ErrorBody {
  readonly bytes: Buffer
  readonly type: string
  readonly message: UpstreamMessage | null
}

/**
 * Reads the answer that came with an HTTP error: a JSON-RPC response with our id, or an error without any.
 * Throws McpUpstreamError if the body is anything else; `new_session` is its cure if the session is unknown.
 */
export function errorIn(
  { bytes, type, message }: ErrorBody,
  head: Pick<McpResponseHead, 'status' | 'headers'>,
  expectation: ExpectedAnswer,
): UpstreamMessage {
  const { status } = head
  const { requestId, session } = expectation
  const named = session === 'named'
  if (session !== 'none' && sessionIsGone({ status, named, requestId, bytes, message })) {
    throw mcpUpstreamFailure('the upstream does not know the session', { status, cure: 'new_session' })
  }
  // A refusal of this very request is for its caller; any other, and one with a challenge, is of our credentials.
  const isChallenge = head.headers['www-authenticate'] !== undefined
  if (status === 403 && (isChallenge || message?.value.id !== requestId))
    throw statusFailure(head, expectation)
  if (message === null || !answersRequest(message, requestId))
    throw statusFailure(head, expectation, httpErrorReport(head.headers, bytes, type, expectation))
  if (holdsSecret(message, expectation.credentials)) {
    throw mcpUpstreamFailure('an answer holds the secret of our credentials', { status })
  }
  return message
}

/** Bytes. A longer text of a failure is replaced by our words. */
const MAX_WORDS_BYTES = 16_384

function httpErrorReport(
  headers: ResponseHeaders,
  bytes: Buffer,
  type: string,
  { credentials }: ExpectedAnswer,
): HttpErrorReport {
  const waiting = waitingHeaders(headers, credentials)
  const isSmallJson = bytes.length <= MAX_WORDS_BYTES && /^application\/([\w.+-]+\+)?json$/.test(type)
  const id = headers['x-request-id'] ?? headers['request-id']
  return {
    words: isSmallJson && !echoesSecret(credentials, bytes) ? wordsIn(bytes) : null,
    headers: waiting,
    requestId: typeof id === 'string' && /^[\x21-\x7e]{1,128}$/.test(id) ? id : null,
  }
}

function wordsIn(bytes: Buffer): ErrorWords | null {
  try {
    return parseErrorWords(JSON.parse(bytes.toString()))
  } catch {
    // Its status is reported, in our words.
    return null
  }
}

const WAITING = /^(?:retry-after(?:-ms)?|(?:x-)?ratelimit-[a-z0-9-]{1,64})$/
const MAX_WAITING = 16

export function waitingHeaders(
  headers: ResponseHeaders,
  credentials: UpstreamCredentials,
): Record<string, string> {
  const all = Object.entries(headers).flatMap(([name, value]) =>
    WAITING.test(name) && typeof value === 'string' && /^[\x20-\x7e]{1,256}$/.test(value)
      ? [[name, value] as const]
      : [],
  )
  return echoesSecret(credentials, Buffer.from(all.map(([, value]) => value).join('\n')))
    ? {}
    : Object.fromEntries(all.slice(0, MAX_WAITING))
}

const CREDENTIALS = { none: 'none', bearer: 'ours', api_key: 'ours', mtls: 'ours', oauth: 'account' } as const

export function statusFailure(
  { status, headers }: Pick<McpResponseHead, 'status' | 'headers'>,
  { resource, credentials }: Pick<ExpectedAnswer, 'resource' | 'credentials'>,
  told?: HttpErrorReport,
): McpUpstreamError {
  const problem = statusProblem({
    status,
    headers,
    endpoint: resource.endpoint_url,
    credentials: CREDENTIALS[resource.auth_type],
    isHarmless: (text) => !echoesSecret(credentials, Buffer.from(text)),
  })
  return mcpUpstreamFailure(problem, { status, ...(told && { told }) })
}

/** Tells whether a message answers the request. Only an error may have no id. */
function answersRequest(message: UpstreamMessage, requestId: number): boolean {
  if (kindOfMessage(message) !== 'response') return false
  const id = message.value.id ?? null
  return id === requestId || id === null
}

/** The amount that is looked at of a body that is no message. Bytes. */
const GLANCE = 4_096
/** The words of servers that do not know a session, or have forgotten the handshake. */
const WORDS = /session|not initialized/i

/** An HTTP error to a request of the legacy era that was sent in a session. */
interface SessionRefusal {
  readonly status: number
  /** True if the request named a session; a server need not give sessions names. */
  readonly named: boolean
  readonly requestId: number
  readonly bytes: Buffer
  /** The body if it is a JSON-RPC message. */
  readonly message: UpstreamMessage | null
}

/**
 * Tells whether the upstream says that it does not know the session, so that it cannot have acted: 404 to a
 * request that named one (2025-11-25, transports: session management), or 400 with words to that effect, or
 * with an error of the newer era. A result never says so; nor does, with 400, an error that answers this very
 * request.
 */
function sessionIsGone({ status, named, requestId, bytes, message }: SessionRefusal): boolean {
  if (message !== null && responseResult(message) !== null) return false
  if (status === 404) return named
  if (status !== 400 || message?.value.id === requestId) return false
  return (message !== null && isOfNewerEra(message)) || WORDS.test(bytes.toString('latin1', 0, GLANCE))
}

/** Tells an error that only a server of the newer era answers, before it does anything. */
export const isOfNewerEra = (message: UpstreamMessage): boolean => {
  const code = errorCodeOf(message)
  return code === UNSUPPORTED_VERSION || code === HEADER_MISMATCH
}

/** Tells whether an HTTP error speaks of an unknown session: the next request begins a new one. */
export function sessionMayBeGone(status: number, { value }: UpstreamMessage): boolean {
  if (status !== 400 && status !== 404) return false
  return isObject(value.error) && typeof value.error.message === 'string' && WORDS.test(value.error.message)
}
