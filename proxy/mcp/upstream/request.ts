import { setTimeout } from 'node:timers/promises'
import type { McpResource } from '../../../db/mcp/resources.ts'
import { type CallAuthority, OWN_AUTHORITY } from '../../../plugins/call-authority.ts'
import type { CallPermit, OperatorPermit } from '../../../plugins/permit.ts'
import type { HangupSignal, MemoryReservation } from '../../../plugins/plugin.ts'
import { VERSION } from '../../boot/version.ts'
import { type ErrorWords, parseErrorWords } from '../../egress/error-words.ts'
import { MAX_INLINE_BYTES } from '../aside/aside.ts'
import type { McpUpstreamLimits } from '../options.ts'
import { requestMessage } from '../protocol/json-text.ts'
import type { ProtocolEra } from '../protocol/versions.ts'
import {
  echoesSecret,
  type McpConnection,
  type McpConnections,
  type UpstreamCredentials,
} from './connections.ts'
import { type HttpErrorReport, McpUpstreamError, mcpUpstreamFailure, statusProblem } from './errors.ts'
import {
  type AnswerMessages,
  EventReader,
  MessageStream,
  type SizeLimits,
  type StreamPlace,
  type StreamResumption,
} from './events.ts'
import {
  drainBody,
  exchangeHttp,
  type HeaderList,
  isContentEncoded,
  type McpResponseBody,
  type McpResponseHead,
  mediaTypeOf,
  type OutgoingRequest,
  type ResponseHeaders,
} from './exchange.ts'
import { readLarge, readLargeEvent } from './large-message.ts'
import {
  isLargeMessage,
  kindOfMessage,
  readEntireBody,
  readEvent,
  readMessage,
  type UpstreamMessage,
} from './message.ts'
import { sessionIsGone } from './session-gone.ts'

/** The transport to all MCP servers. Only `openMcpUpstream` makes one, for this folder alone. */
export interface UpstreamTransport {
  readonly connections: McpConnections
  readonly limits: McpUpstreamLimits
  /** An id that no request of ours has had. */
  readonly nextId: () => number
}

const USER_AGENT = `sallyport/${VERSION}`

const FIXED: HeaderList = [
  'accept',
  'application/json, text/event-stream',
  'accept-encoding',
  'identity',
  'content-type',
  'application/json',
  'user-agent',
  USER_AGENT,
]

/** The reason why a message may be sent at all: a granted call, or the reading of a server's list. */
export type UpstreamPermit = CallPermit | OperatorPermit

export interface McpUpstreamRequest extends Omit<ExpectedAnswer, 'credentials' | 'limits' | 'resume'> {
  readonly permit: UpstreamPermit
  readonly resource: McpResource
  readonly method: string
  /** JSON text of an object, or null for none. Bytes: a large one. */
  readonly params: string | Buffer | null
  /** The headers of the era, the session and the call. None of them may be one of every message. */
  readonly headers: HeaderList
}

/** Sends a request. Throws {@link McpUpstreamError}, or why nobody waits. Calls `settled` once. */
export async function sendMcpRequest(
  transport: UpstreamTransport,
  request: McpUpstreamRequest,
): Promise<McpAnswer> {
  const { resource, settled } = request
  let connection: McpConnection
  let head: McpResponseHead
  try {
    const found = transport.connections.of(resource)
    connection = found instanceof Promise ? await found : found
    head = await exchangeHttp(connection, post(transport, textOf(request), request, request.permit.authority))
  } catch (error) {
    // Silence, and a caller who gave up, say nothing of the upstream: it may be at work. Not on a request
    // that a revocation kept here.
    settled(error instanceof McpUpstreamError ? error.kind !== 'timeout' : !request.hangup.gone)
    throw error
  }
  const { credentials } = connection
  const resume = request.era === 'legacy' ? resumption(transport, connection, request, head) : null
  return readMcpAnswer(head, { ...request, credentials, limits: transport.limits, resume })
}

/** A stream is asked for so often without a new event. */
const MAX_IDLE_RESUMES = 5
/** A stream is asked for so often in all. */
const MAX_RESUMES = 1_000
/** The time before a stream is asked for again if its server states none, and the least. ms. */
const RETRY_MS = 1_000
const MIN_RETRY_MS = 50

/** Has the rest of an answer's stream by GET (MCP 2025-11-25: resumability; SEP-1699). */
function resumption(
  { limits }: UpstreamTransport,
  connection: McpConnection,
  { permit, hangup, headers }: McpUpstreamRequest,
  { headers: { 'mcp-session-id': opened } }: McpResponseHead,
): StreamResumption['resume'] {
  const until = performance.now() + limits.totalMs
  const session = typeof opened === 'string' && !headers.includes('mcp-session-id') ? [opened] : []
  let times = 0
  let idle = 0
  const ask = async (from: StreamPlace): Promise<McpResponseBody> => {
    times += 1
    idle = from.progressed ? 1 : idle + 1
    const pauseMs = Math.max(MIN_RETRY_MS, from.retryMs ?? RETRY_MS * idle)
    const left = until - performance.now() - pauseMs
    if (times > MAX_RESUMES || idle > MAX_IDLE_RESUMES || pauseMs > limits.answerMs || left < 1)
      throw lostAnswer('the event stream ended, and does not go on in time')
    await pause(pauseMs, hangup)
    const {
      status,
      headers: stated,
      body,
    } = await exchangeHttp(connection, {
      method: 'GET',
      headers: [
        ...headers,
        ...session.flatMap((id) => ['mcp-session-id', id]),
        ...['accept', 'text/event-stream', 'accept-encoding', 'identity'],
        ...['user-agent', USER_AGENT, 'last-event-id', from.lastEventId],
      ],
      body: null,
      totalMs: left,
      limitMs: limits.totalMs,
      hangup,
      authority: permit.authority,
    })
    if (status === 200 && mediaTypeOf(stated) === 'text/event-stream' && !isContentEncoded(stated))
      return body
    drainBody(body)
    throw lostAnswer('the event stream ended, and its rest cannot be had', { status })
  }
  return async (from) => {
    for (let place = from; ; place = { ...from, progressed: false }) {
      try {
        return await ask(place)
      } catch (error) {
        if (!(error instanceof McpUpstreamError) || error.outcomeUnknown) throw error
        // Its server may be starting again.
        if (error.kind !== 'unreachable')
          throw lostAnswer('the rest of the event stream does not come', { cause: error })
      }
    }
  }
}

const lostAnswer = (message: string, options: { readonly status?: number; readonly cause?: unknown } = {}) =>
  mcpUpstreamFailure(message, { ...options, outcomeUnknown: true })

/** Waits. Rejects with the reason why nobody waits any more. */
const pause = (ms: number, { signal }: HangupSignal): Promise<void> =>
  setTimeout(ms, undefined, { signal }).catch(() => {
    throw signal.reason
  })

function textOf({ requestId, method, params }: McpUpstreamRequest): string | Buffer {
  if (params === null || typeof params === 'string') return requestMessage(requestId, method, params)
  const head = `{"jsonrpc":"2.0","id":${requestId},"method":${JSON.stringify(method)},"params":`
  return Buffer.concat([Buffer.from(head), params, Buffer.from('}')])
}

export interface OneWayMessage {
  readonly permit: UpstreamPermit
  /**
   * True: it only takes back a request that the permit has allowed, and goes out whatever has become of that.
   */
  readonly takesBack?: boolean
  readonly resource: McpResource
  readonly text: string
  readonly headers: HeaderList
  readonly hangup: HangupSignal
}

/** Sends a message that has no answer. Throws as {@link sendMcpRequest} does. */
export async function sendOneWayMessage(
  transport: UpstreamTransport,
  { permit, takesBack = false, resource, text, ...rest }: OneWayMessage,
): Promise<void> {
  const authority = takesBack ? OWN_AUTHORITY : permit.authority
  const connection = await transport.connections.of(resource)
  const { status, body } = await exchangeHttp(connection, post(transport, text, rest, authority))
  drainBody(body)
  if (status !== 202 && status !== 200 && status !== 204) {
    throw mcpUpstreamFailure(`HTTP status ${status} to a message without an answer`, { status })
  }
}

const post = (
  { limits }: UpstreamTransport,
  body: string | Buffer,
  { headers, hangup }: Pick<McpUpstreamRequest, 'headers' | 'hangup'>,
  authority: CallAuthority,
): OutgoingRequest => ({
  method: 'POST',
  headers: [...headers, ...FIXED],
  body,
  totalMs: limits.totalMs,
  hangup,
  authority,
})

interface McpAnswerHead {
  readonly status: number
  readonly headers: ResponseHeaders
  /** Ours on the wire. Only an error with an HTTP status of 400 and up may have none. */
  readonly requestId: number
}

interface McpSingleAnswer extends McpAnswerHead {
  readonly streamed: false
  readonly response: UpstreamMessage
  readonly waiting: Readonly<Record<string, string>>
}

const NO_HEADERS = {}

export interface McpStreamedAnswer extends McpAnswerHead {
  readonly streamed: true
  readonly messages: AnswerMessages
}

/** An MCP server's answer: the response alone, or an event stream that ends with it. */
export type McpAnswer = McpSingleAnswer | McpStreamedAnswer

export interface ExpectedAnswer {
  readonly requestId: number
  readonly era: ProtocolEra
  readonly credentials: UpstreamCredentials
  readonly limits: SizeLimits
  /** The account that the answer is counted on; null if no caller waits for it. */
  readonly held: MemoryReservation | null
  readonly resource: Pick<McpResource, 'resource_id' | 'endpoint_url' | 'auth_type'>
  readonly hangup: HangupSignal
  /** The session that the request was sent in: none, one without an id, or one that it named. */
  readonly session: 'none' | 'unnamed' | 'named'
  /** Called once, when nothing more can come. False: the upstream may still be at work on the request. */
  readonly settled: (answered: boolean) => void
  /** Has the rest of a stream that ended too early. Absent or null: a stream has none. */
  readonly resume?: StreamResumption['resume']
}

/** Reads an answer: whole, unless it is an event stream. Throws McpUpstreamError if it can be none. */
export async function readMcpAnswer(head: McpResponseHead, expectation: ExpectedAnswer): Promise<McpAnswer> {
  const { status, headers, body } = head
  const { requestId, limits, held, settled, resume = null } = expectation
  const isStream =
    status === 200 && mediaTypeOf(headers) === 'text/event-stream' && !isContentEncoded(headers)
  if (isStream) {
    const read = (data: Buffer) => readCheckedEvent(data, expectation)
    const messages = new MessageStream(body, new EventReader(limits, held), read, { resume, settled })
    return { status, headers, requestId, streamed: true, messages }
  }
  body.onceOver(() => settled(status !== 200 || body.complete))
  try {
    const type = typeOf(head, expectation)
    const whole = readEntireBody(body, limits.maxMessageBytes, held)
    const bytes = whole instanceof Promise ? await whole : whole
    const read =
      status >= 400 ? errorIn(bytes, head, type, expectation) : readCheckedMessage(bytes, expectation)
    const response = read instanceof Promise ? await read : read
    if (kindOfMessage(response) !== 'response') throw mcpUpstreamFailure('the answer is not a response')
    const waiting = status >= 400 ? waitingHeaders(headers, expectation.credentials) : NO_HEADERS
    return { status, headers, requestId, streamed: false, response, waiting }
  } catch (error) {
    drainBody(body)
    throw error
  }
}

function typeOf(head: McpResponseHead, expectation: ExpectedAnswer): string {
  const { status, headers } = head
  if (status === 401) throw statusFailure(head, expectation)
  if (isContentEncoded(headers))
    throw mcpUpstreamFailure('the answer is compressed, which was not asked for', { status })
  const type = mediaTypeOf(headers)
  if (status >= 400) return type
  if (status !== 200) throw statusFailure(head, expectation)
  if (type === 'application/json') return type
  const page = type === 'text/html' ? ' but a page: correct the path of endpoint_url' : ''
  throw mcpUpstreamFailure(`the answer is neither JSON nor an event stream${page}`, { status })
}

function statusFailure(
  { status, headers }: Pick<McpResponseHead, 'status' | 'headers'>,
  { resource, credentials }: Pick<ExpectedAnswer, 'resource' | 'credentials'>,
  told?: HttpErrorReport,
): McpUpstreamError {
  const problem = statusProblem({
    status,
    headers,
    endpoint: resource.endpoint_url,
    hasCredentials: resource.auth_type !== 'none',
    isHarmless: (text) => !echoesSecret(credentials, Buffer.from(text)),
  })
  return mcpUpstreamFailure(problem, { status, ...(told && { told }) })
}

/**
 * Reads the answer that came with an HTTP error: a JSON-RPC response with our id, or an error without any.
 * Throws McpUpstreamError if the body is anything else; `new_session` is its cure if the session is unknown.
 */
async function errorIn(
  bytes: Buffer,
  head: Pick<McpResponseHead, 'status' | 'headers'>,
  type: string,
  expectation: ExpectedAnswer,
): Promise<UpstreamMessage> {
  const { status } = head
  const { requestId, session } = expectation
  const message = type === 'application/json' ? await messageIn(bytes, expectation) : null
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
  if (holdsSecret(message, expectation)) {
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

function waitingHeaders(headers: ResponseHeaders, credentials: UpstreamCredentials): Record<string, string> {
  const all = Object.entries(headers).flatMap(([name, value]) =>
    WAITING.test(name) && typeof value === 'string' && /^[\x20-\x7e]{1,256}$/.test(value)
      ? [[name, value] as const]
      : [],
  )
  return echoesSecret(credentials, Buffer.from(all.map(([, value]) => value).join('\n')))
    ? {}
    : Object.fromEntries(all.slice(0, MAX_WAITING))
}

function messageOf(bytes: Buffer, expectation: ExpectedAnswer): UpstreamMessage | Promise<UpstreamMessage> {
  return bytes.length <= MAX_INLINE_BYTES ? readMessage(bytes) : readLarge(bytes, largeOf(expectation))
}

const largeOf = ({ credentials, hangup }: ExpectedAnswer) => ({
  signal: hangup.signal,
  traces: credentials.traces,
})

/** Tells of a small message whether it holds the secret of our credentials. */
const holdsSecret = (message: UpstreamMessage, { credentials }: ExpectedAnswer): boolean =>
  !isLargeMessage(message) && echoesSecret(credentials, message.bytes)

async function messageIn(bytes: Buffer, expectation: ExpectedAnswer): Promise<UpstreamMessage | null> {
  try {
    return await messageOf(bytes, expectation)
  } catch (error) {
    if (!(error instanceof McpUpstreamError)) throw error
    // A page or nothing: it answers no request.
    return null
  }
}

/** Tells whether a message answers the request. Only an error may have no id. */
function answersRequest(message: UpstreamMessage, requestId: number): boolean {
  if (kindOfMessage(message) !== 'response') return false
  const id = message.value.id ?? null
  return id === requestId || id === null
}

function readCheckedMessage(
  bytes: Buffer,
  expectation: ExpectedAnswer,
): UpstreamMessage | Promise<UpstreamMessage> {
  const checked = (message: UpstreamMessage): UpstreamMessage => {
    if (isOfAnother(checkMessage(message, expectation), expectation.requestId))
      throw mcpUpstreamFailure('a response to another request')
    return message
  }
  const message = messageOf(bytes, expectation)
  return message instanceof Promise ? message.then(checked) : checked(message)
}

/** Reads an event; null: nobody asked for it, and the answer goes on. */
function readCheckedEvent(
  bytes: Buffer,
  expectation: ExpectedAnswer,
): UpstreamMessage | null | Promise<UpstreamMessage | null> {
  const { requestId } = expectation
  const checked = (read: UpstreamMessage | null): UpstreamMessage | null => {
    const message = read && checkMessage(read, expectation)
    return message && isOfAnother(message, requestId) ? null : message
  }
  return bytes.length <= MAX_INLINE_BYTES
    ? checked(readEvent(bytes, requestId))
    : readLargeEvent(bytes, { ...largeOf(expectation), requestId }).then(checked)
}

const isOfAnother = (message: UpstreamMessage, requestId: number): boolean =>
  kindOfMessage(message) === 'response' && message.value.id !== requestId

function checkMessage(message: UpstreamMessage, expectation: ExpectedAnswer): UpstreamMessage {
  if (holdsSecret(message, expectation))
    throw mcpUpstreamFailure('a message holds the secret of our credentials')
  // 2026-07-28, streamable HTTP: a server asks its questions in a result.
  if (kindOfMessage(message) === 'request' && expectation.era === 'modern')
    throw mcpUpstreamFailure('a request where there can be none')
  return message
}
