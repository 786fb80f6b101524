import type { McpResource } from '../../../db/mcp/resources.ts'
import { type CallAuthority, OWN_AUTHORITY } from '../../../plugins/call-authority.ts'
import type { CallTrace, TracedAttempt, TracedRequest } from '../../../plugins/call-trace.ts'
import type { CallPermit, OperatorPermit } from '../../../plugins/permit.ts'
import type { HangupSignal } from '../../../plugins/plugin.ts'
import { MAX_INLINE_BYTES } from '../aside/aside.ts'
import type { McpUpstreamLimits } from '../options.ts'
import { requestMessage } from '../protocol/json-text.ts'
import type { ExpectedAnswer, McpAnswer } from './answers.ts'
import type { CallerAccount, McpConnection, McpConnections } from './connections.ts'
import { errorIn, statusFailure, waitingHeaders } from './error-answers.ts'
import { McpUpstreamError, mcpUpstreamFailure } from './errors.ts'
import { EventReader, MessageStream } from './events.ts'
import {
  drainBody,
  exchangeHttp,
  type HeaderList,
  isContentEncoded,
  type McpResponseHead,
  mediaTypeOf,
  type OutgoingRequest,
  USER_AGENT,
} from './exchange.ts'
import { readLarge, readLargeEvent } from './large-message.ts'
import {
  holdsSecret,
  kindOfMessage,
  readEntireBody,
  readEvent,
  readMessage,
  type UpstreamMessage,
} from './message.ts'
import { resumption } from './resumption.ts'

/** The transport to all MCP servers. Only `openMcpUpstream` makes one, for this folder alone. */
export interface UpstreamTransport {
  readonly connections: McpConnections
  readonly limits: McpUpstreamLimits
  /** An id that no request of ours has had. */
  readonly nextId: () => number
}

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
  /** Null: its `auth_type` is not `oauth`. */
  readonly account: CallerAccount | null
  readonly method: string
  /** JSON text of an object, or null for none. Bytes: a large one. */
  readonly params: string | Buffer | null
  /** The headers of the era, the session and the call. None of them may be one of every message. */
  readonly headers: HeaderList
  readonly trace?: CallTrace | null
  readonly traced?: string | null
}

/** Sends a request. Throws {@link McpUpstreamError}, or why nobody waits. Calls `settled` once. */
export async function sendMcpRequest(
  transport: UpstreamTransport,
  request: McpUpstreamRequest,
): Promise<McpAnswer> {
  const attempt = request.trace?.attempt(tracedRequest(request)) ?? null
  const settled = attempt ? endingWith(attempt, request) : request.settled
  let connection: McpConnection
  let head: McpResponseHead
  try {
    const { traceparent } = attempt?.context ?? {}
    const traced =
      traceparent === undefined
        ? request
        : { ...request, headers: [...request.headers, 'traceparent', traceparent] }
    const sent = post(transport, textOf(request), traced, request.permit.authority)
    ;({ connection, head } = await exchangeAs(transport, request, sent))
    attempt?.answered(head.status)
  } catch (error) {
    attempt?.ended(error instanceof McpUpstreamError ? error.kind : 'client_gone')
    // Silence, and a caller who gave up, say nothing of the upstream: it may be at work. Not on a request
    // that a revocation kept here.
    settled(error instanceof McpUpstreamError ? error.kind !== 'timeout' : !request.hangup.gone)
    throw error
  }
  const { credentials } = connection
  const isResumed = request.era === 'legacy' && isEventStream(head)
  const resume = isResumed ? resumption(transport, connection, request, head) : null
  return readMcpAnswer(head, { ...request, settled, credentials, limits: transport.limits, resume })
}

interface ConnectedHead {
  readonly connection: McpConnection
  readonly head: McpResponseHead
}

/** Exchanges a request, and once more if its account has newer credentials: the server did nothing with it. */
async function exchangeAs(
  { connections }: UpstreamTransport,
  { resource, account }: Pick<McpUpstreamRequest, 'resource' | 'account'>,
  outgoing: OutgoingRequest,
): Promise<ConnectedHead> {
  const found = connections.of(resource, account)
  const connection = found instanceof Promise ? await found : found
  const head = await exchangeHttp(connection, outgoing)
  if (account === null || !(await isRenewed(account, head))) return { connection, head }
  const renewed = await connections.of(resource, account)
  const second = await exchangeHttp(renewed, outgoing)
  // What it says of scopes counts, and no newer credentials are had.
  if (second.status === 403) await isRenewed(account, second)
  return { connection: renewed, head: second }
}

async function isRenewed(
  account: CallerAccount,
  { status, headers, body }: McpResponseHead,
): Promise<boolean> {
  if (status !== 401 && status !== 403) return false
  try {
    const isCured = await account.renews({ status, headers })
    if (isCured) drainBody(body)
    return isCured
  } catch (error) {
    drainBody(body)
    throw error
  }
}

const tracedRequest = ({ resource, method, traced = null }: McpUpstreamRequest): TracedRequest => ({
  upstream: resource.name,
  origin: resource.endpoint_url,
  method,
  target: traced,
})

/** Ends the span of a request where the request is over. */
const endingWith =
  (attempt: TracedAttempt, { settled }: McpUpstreamRequest): McpUpstreamRequest['settled'] =>
  (answered) => {
    attempt.ended(answered ? null : 'no_answer')
    settled(answered)
  }

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
  /** Null: its `auth_type` is not `oauth`. */
  readonly account: CallerAccount | null
  readonly text: string
  readonly headers: HeaderList
  readonly hangup: HangupSignal
}

/** Sends a message that has no answer. Throws as {@link sendMcpRequest} does. */
export async function sendOneWayMessage(
  transport: UpstreamTransport,
  { permit, takesBack = false, text, ...rest }: OneWayMessage,
): Promise<void> {
  const authority = takesBack ? OWN_AUTHORITY : permit.authority
  const { head } = await exchangeAs(transport, rest, post(transport, text, rest, authority))
  const { status, body } = head
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

const NO_HEADERS = {}

const isEventStream = ({ status, headers }: McpResponseHead): boolean =>
  status === 200 && mediaTypeOf(headers) === 'text/event-stream' && !isContentEncoded(headers)

/** Reads an answer: whole, unless it is an event stream. Throws McpUpstreamError if it can be none. */
export async function readMcpAnswer(head: McpResponseHead, expectation: ExpectedAnswer): Promise<McpAnswer> {
  const { status, headers, body } = head
  const { requestId, limits, held, settled, resume = null } = expectation
  if (isEventStream(head)) {
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
      status >= 400 ? readError(bytes, head, type, expectation) : readCheckedMessage(bytes, expectation)
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

function messageOf(bytes: Buffer, expectation: ExpectedAnswer): UpstreamMessage | Promise<UpstreamMessage> {
  return bytes.length <= MAX_INLINE_BYTES ? readMessage(bytes) : readLarge(bytes, largeOf(expectation))
}

const largeOf = ({ credentials, hangup }: ExpectedAnswer) => ({
  signal: hangup.signal,
  traces: credentials.traces,
})

async function readError(
  bytes: Buffer,
  head: McpResponseHead,
  type: string,
  expectation: ExpectedAnswer,
): Promise<UpstreamMessage> {
  const message = type === 'application/json' ? await messageIn(bytes, expectation) : null
  return errorIn({ bytes, type, message }, head, expectation)
}

async function messageIn(bytes: Buffer, expectation: ExpectedAnswer): Promise<UpstreamMessage | null> {
  try {
    return await messageOf(bytes, expectation)
  } catch (error) {
    if (!(error instanceof McpUpstreamError)) throw error
    // A page or nothing: it answers no request.
    return null
  }
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
  if (holdsSecret(message, expectation.credentials))
    throw mcpUpstreamFailure('a message holds the secret of our credentials')
  // 2026-07-28, streamable HTTP: a server asks its questions in a result.
  if (kindOfMessage(message) === 'request' && expectation.era === 'modern')
    throw mcpUpstreamFailure('a request where there can be none')
  return message
}
