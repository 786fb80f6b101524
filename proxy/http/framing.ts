import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { Refusal, type RefusalReason } from '../../plugins/refusal.ts'
import {
  CONNECTION_PLACE,
  ConnectionLimit,
  type ConnectionPlace,
  type PlacedConnection,
  UNLIMITED_CONNECTIONS,
} from '../tls/connection-limit.ts'
import { type LingerableConnection, lingerAtEnd } from '../tls/lingering.ts'
import { refusalBody } from './refusal.ts'

// A second one of these is an attack: Node and the next hop differ (docs/threats.md#t8).
const SINGLE = [
  'authorization',
  'content-length',
  'content-type',
  'dpop',
  'expect',
  'host',
  'transfer-encoding',
  'x-admin-secret',
  'x-api-key',
  'if-match',
  'mcp-session-id',
  'mcp-protocol-version',
  'mcp-method',
  'mcp-name',
  'origin',
]
const SINGLE_BITS = new Map(SINGLE.map((name, index) => [name, 1 << index]))

// host, optional port, which may be empty (RFC 3986 §3.2.3); no userinfo, path or blank (RFC 9110 §7.2).
const HOST = /^(?:[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{0,5})?$/
// origin-form only (RFC 9112 §3.2.1): printable ASCII; never `//host`, never a fragment or a backslash.
const TARGET = /^\/(?!\/)[\x21\x22\x24-\x5b\x5d-\x7e]*$/

/**
 * Returns the refusal of a request that Node's parser lets through and this service does not
 * (docs/threats.md#t7, #t8, #threat-10), or null. The refusal closes the connection.
 */
export function framingFault(request: RequestHead): Refusal | null {
  const message = lineFault(request) ?? headerFault(request)
  if (message !== null) return new Refusal('bad_request', { message, ...CLOSE })
  const expected = request.headers.expect ?? '100-continue'
  return expected.toLowerCase() === '100-continue' ? null : new Refusal('expectation_failed', CLOSE)
}

type RequestStartLine = Pick<IncomingMessage, 'httpVersion' | 'method' | 'url'>
type RequestHead = RequestStartLine & Pick<IncomingMessage, 'headers' | 'rawHeaders'>

const CLOSE = { headers: { connection: 'close' } } as const

function lineFault({ httpVersion, method, url }: RequestStartLine): string | null {
  if (httpVersion !== '1.1') return 'Only HTTP/1.1 is supported.'
  if (method === 'TRACE' || method === 'CONNECT') return 'This method is not supported.'
  return url && TARGET.test(url) ? null : 'The request target must be an absolute path.'
}

function headerFault({ headers, rawHeaders }: RequestHead): string | null {
  let seen = 0
  let hasOthers = false
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = (rawHeaders[i] ?? '').toLowerCase()
    const value = rawHeaders[i + 1] ?? ''
    // `X_Admin_Secret` is another header to us and the same one to some servers.
    if (name.includes('_')) {
      if (spellsOurs(name)) return `The header ${name} must be written with hyphens in place of underscores.`
      hasOthers = true
      continue
    }
    const bit = SINGLE_BITS.get(name)
    if (bit === undefined) continue
    if ((seen & bit) !== 0) return `The header ${name} was sent twice.`
    seen |= bit
    if (name === 'host' && !HOST.test(value)) return 'The Host header is not a valid host.'
    if (name === 'transfer-encoding' && value.toLowerCase() !== 'chunked')
      return 'Only chunked transfer coding is accepted.'
  }
  if (hasOthers) for (const name of Object.keys(headers)) if (name.includes('_')) delete headers[name]
  return (seen & HOST_BIT) === 0 ? 'The Host header is missing.' : null
}

/** Headers that this service acts by, in addition to those that may come once. */
const OWN_HEADERS: ReadonlySet<string> = new Set([
  ...SINGLE,
  'accept',
  'anthropic-version',
  'connection',
  'content-encoding',
  'cookie',
  'forwarded',
  'idempotency-key',
  'if-none-match',
  'if-rehearsed',
  'keep-alive',
  'last-event-id',
  'referer',
  'te',
  'trailer',
  'upgrade',
  'x-client-request-id',
  'x-csrf-token',
  'x-request-id',
])
const OWN_PREFIXES = ['mcp-', 'proxy-', 'sec-fetch-', 'x-forwarded-', 'x-sallyport-']

/** Tells whether a name with an underscore is one of ours to a server that takes it for a hyphen. */
function spellsOurs(name: string): boolean {
  const ours = name.replaceAll('_', '-')
  return OWN_HEADERS.has(ours) || OWN_PREFIXES.some((prefix) => ours.startsWith(prefix))
}

const HOST_BIT = SINGLE_BITS.get('host') ?? 0

/** The requests of one connection that are served at once (docs/threats.md#a4). The rest waits. */
const MAX_UNDER_WAY = 4
/** The requests of one connection that are under way or wait (docs/threats.md#f-23). */
const MAX_PIPELINED = 100

/** The connections on which requests wait. One reading in pieces of one byte takes 2 MiB. */
const MAX_WAITING = 64

type PipeliningLimit = Pick<ConnectionLimit, 'reservePipelined' | 'releasePipelined'>

interface ListenerPipelines {
  readonly handle: RequestListener
  readonly inLine: Set<ConnectionRequests>
  readonly limit: PipeliningLimit
}

class ConnectionRequests {
  readonly #handle: RequestListener
  readonly #socket: Socket
  readonly #inLine: Set<ConnectionRequests>
  /** True if a request was answered before its body had come. */
  answeredEarly = false
  #last: Parameters<RequestListener> | null = null
  readonly #limit: PipeliningLimit
  readonly #place: ConnectionPlace | undefined
  #underWay = 0
  #waiting: Parameters<RequestListener>[] = []
  /** The heads that have come, and the last one's request until it is answered: it may hold a body. */
  #heads = 0
  #newest: IncomingMessage | null = null
  /** The time in which nothing of what comes after that head was read: so far, and since. ms. */
  #unreadMs = 0
  #unreadSince: number | null = null
  /** Ends the time in which requests wait, and what comes after them is not read. */
  #goOn = (): void => {}

  constructor(socket: Socket & PlacedConnection, { inLine, handle, limit }: ListenerPipelines) {
    this.#socket = socket
    this.#inLine = inLine
    this.#handle = handle
    this.#limit = limit
    this.#place = socket[CONNECTION_PLACE]
  }

  get length(): number {
    return this.#underWay + this.#waiting.length
  }

  add(...request: Parameters<RequestListener>): void {
    this.#heads += 1
    this.#newest = request[0]
    this.#forgetUnread()
    if (this.length >= MAX_PIPELINED) this.#socket.destroy()
    else if (this.#waiting.length === 0 && this.#mayServe()) this.#serve(request)
    else this.#wait(request)
  }

  /** A call alongside others takes a descriptor more than its connection has. */
  #mayServe(): boolean {
    return this.#underWay === 0 || (this.#underWay < MAX_UNDER_WAY && this.#limit.reservePipelined())
  }

  /** Begins a time in which nothing is read. Returns its end. */
  leaveUnread(): () => void {
    this.#unreadSince ??= performance.now()
    return () => {
      this.#unreadMs = this.#unread
      this.#unreadSince = null
    }
  }

  get #unread(): number {
    return this.#unreadMs + (this.#unreadSince === null ? 0 : performance.now() - this.#unreadSince)
  }

  /**
   * Gives a message that is late the time in which it was not read, and then calls `late`, if it still is.
   * Returns false if there was none. `bodyMs`: the time of a body.
   */
  giveTime(bodyMs: number, late: () => void): boolean {
    const ms = this.#unread
    if (ms < 1) return false
    this.#forgetUnread()
    const heads = this.#heads
    const isHead = this.#isComplete
    const look = (): void => {
      if (this.#socket.destroyed) return
      // Its head has come in the meantime, and nobody else limits the time of its body.
      if (this.#heads !== heads) this.#limitBody(bodyMs, late)
      else if ((isHead || !this.#isComplete) && !this.giveTime(bodyMs, late)) late()
    }
    setTimeout(look, ms).unref()
    return true
  }

  /** True unless a body is on its way. */
  get #isComplete(): boolean {
    return this.#newest?.complete !== false
  }

  #limitBody(ms: number, late: () => void): void {
    const heads = this.#heads
    const look = (): void => {
      if (this.#heads !== heads || this.#isComplete || this.#socket.destroyed) return
      if (!this.giveTime(ms, late)) late()
    }
    setTimeout(look, ms).unref()
  }

  #forgetUnread(): void {
    this.#unreadMs = 0
    if (this.#unreadSince !== null) this.#unreadSince = performance.now()
  }

  /** Refuses the one request whose body has begun. Returns false if there is none, or it has its answer. */
  refuseBody(refusal: Refusal): boolean {
    const [req, res]: [(IncomingMessage & BrokenRequest)?, ServerResponse?] = this.#last ?? []
    if (!req || !res || this.length !== 1 || req.complete || res.headersSent) return false
    req[BODY_FAULT] = refusal
    // It is being read.
    if (req.listenerCount('error') > 0) req.emit('error', refusal)
    return true
  }

  #serve([req, res]: Parameters<RequestListener>): void {
    this.#underWay += 1
    this.#last = [req, res]
    res.on('close', () => {
      if (!req.complete) this.answeredEarly = true
      this.#underWay -= 1
      if (this.#underWay > 0) this.#limit.releasePipelined()
      if (this.#last?.[0] === req) this.#last = null
      if (this.#newest === req && req.complete) this.#newest = null
      this.#next()
      if (this.#place && this.#underWay === 0) this.#place.isProtected = false
    })
    this.#handle(req, res)
  }

  #wait(request: Parameters<RequestListener>): void {
    if (this.#waiting.length === 0) {
      if (this.#inLine.size >= MAX_WAITING) return void this.#socket.destroy()
      this.#inLine.add(this)
      this.#socket.once('close', this.#leave)
      this.#goOn = this.leaveUnread()
    }
    this.#waiting.push(request)
    this.#socket.pause()
  }

  #next(): void {
    const [request] = this.#waiting
    // Nobody is left to answer if the connection has closed.
    if (!request || this.#socket.destroyed || !this.#mayServe()) return
    this.#waiting.shift()
    if (this.#waiting.length === 0) {
      this.#socket.off('close', this.#leave)
      this.#leave()
      this.#goOn()
      this.#socket.resume()
    }
    this.#serve(request)
  }

  readonly #leave = (): void => {
    this.#inLine.delete(this)
    this.#waiting = []
  }
}

/** The fault of a body that the parser has given up on. */
const BODY_FAULT = Symbol('body fault')

interface BrokenRequest {
  [BODY_FAULT]?: Refusal
}

/** Throws the refusal of a request whose body cannot be read to its end. */
export function requireSoundBody(req: IncomingMessage & BrokenRequest): void {
  if (req[BODY_FAULT]) throw req[BODY_FAULT]
}

/**
 * Begins a time in which the rest of a request is not read: its time-out does not count that. Returns its end.
 */
export const leaveUnread = (socket: Socket & MarkedSocket): (() => void) =>
  socket[LINE]?.leaveUnread() ?? (() => {})

/** Throws if the body, or the rest of it, cannot come any more: no further event of the request would say so. */
export function requireComingBody(req: IncomingMessage): void {
  requireSoundBody(req)
  if (req.destroyed) throw brokenOff()
}

export const brokenOff = (cause?: unknown): Refusal =>
  new Refusal('bad_request', { cause, message: 'The body ended too early.' })

/** Facts of a connection, on its socket itself: a WeakMap would be walked at each collection. */
const LINE = Symbol('line')
const DISTRUSTED = Symbol('distrusted')

interface MarkedSocket {
  [LINE]?: ConnectionRequests
  [DISTRUSTED]?: true
}

/** Hands requests to `handle`, with `Expect` or without, and answers those that the parser refuses. */
export function attachRequestListener(
  server: Pick<Server, 'on' | 'requestTimeout'>,
  handle: RequestListener,
  limit: PipeliningLimit = new ConnectionLimit(UNLIMITED_CONNECTIONS),
): void {
  const lines: ListenerPipelines = { inLine: new Set(), handle, limit }
  const counted: RequestListener = (req, res) => {
    const socket: Socket & MarkedSocket = req.socket
    socket[LINE] ??= new ConnectionRequests(socket, lines)
    socket[LINE].add(req, res)
  }
  server.on('request', counted)
  // The body is requested only when a plugin reads it: an anonymous caller's upload is refused before it is
  // sent.
  server.on('checkContinue', counted)
  // Refused by the framing gate, in its turn: to write it out here would be to write into another answer.
  server.on('checkExpectation', counted)
  server.on('clientError', ({ code = '' }: NodeJS.ErrnoException, socket: Duplex & MarkedSocket) => {
    const refuse = (): void => refuseMessage(code, socket)
    const isGivenTime = code === TOO_LATE && socket[LINE]?.giveTime(server.requestTimeout, refuse)
    if (!isGivenTime) refuse()
  })
}

/** Answers a message that the parser has given up on, or ends its connection. */
function refuseMessage(code: string, socket: Duplex & MarkedSocket): void {
  // It has been refused, and what came with it cannot be read either.
  if (isDistrusted(socket)) return
  // In the middle of an answer a second status line would be read as its continuation. And after a TLS error
  // there is no connection to answer on: an answer would wait for a handshake that never ends
  // (docs/threats.md#t9).
  const answerable = code.startsWith('HPE_') || code === TOO_LATE
  // Nor is a request answered twice whose body goes wrong after its answer: the second answer would be taken
  // for that of the next request.
  const line = socket[LINE]
  const refusal = new Refusal(PARSER_FAULTS[code] ?? 'bad_request', CLOSE)
  if (!answerable) return void socket.destroy()
  if (line && line.length > 0) {
    // A client that has ended its side is gone, as a rule.
    if (code === 'HPE_INVALID_EOF_STATE' || !line.refuseBody(refusal)) socket.destroy()
    else distrustConnection(socket)
    return
  }
  distrustConnection(socket)
  if (line?.answeredEarly) endSoon(socket)
  else refuseRaw(socket, refusal)
}

const TOO_LATE = 'ERR_HTTP_REQUEST_TIMEOUT'
const PARSER_FAULTS: Readonly<Record<string, RefusalReason>> = {
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  [TOO_LATE]: 'body_timeout',
}

/** Refuses bytes that never became a request, and closes the connection. */
function refuseRaw(socket: Duplex, refusal: Refusal): void {
  if (socket.writable) socket.write(rawRefusal(refusal))
  endSoon(socket)
}

/** The time that a client may leave the last words of a refused connection unread. ms. */
const MAX_LAST_WORDS_MS = 5_000

function endSoon(socket: Duplex): void {
  ;(socket as Socket).destroySoon()
  setTimeout(() => socket.destroy(), MAX_LAST_WORDS_MS).unref()
}

/** Renders a refusal as the whole answer on a connection that then closes. */
export function rawRefusal(refusal: Refusal): string {
  const body = refusalBody(refusal, null)
  return (
    `HTTP/1.1 ${refusal.status} Refused\r\ncontent-type: application/json\r\ncache-control: no-store\r\n` +
    `x-should-retry: false\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`
  )
}

/**
 * Marks a connection on which a request was framed as no honest client would: nothing more is looked at until
 * the refusal is out and the connection closed (docs/threats.md#threat-10).
 */
export function distrustConnection(socket: Duplex & MarkedSocket & LingerableConnection): void {
  socket[DISTRUSTED] = true
  lingerAtEnd(socket)
}

export const isDistrusted = (socket: Duplex & MarkedSocket): boolean => socket[DISTRUSTED] === true

/** The amount that a refused caller may go on sending on a connection that is kept. Bytes. */
const MAX_DISCARDED = 1024 * 1024

/**
 * Sees to the rest of a request that is answered before it has come whole: it is read and forgotten, or the
 * connection lingers. Returns true if the answer must close the connection. `closes`: it will in any case.
 */
export function discardRequestBody(
  req: IncomingMessage & BrokenRequest,
  res: ServerResponse,
  closes: boolean,
): boolean {
  const { socket, headers, [BODY_FAULT]: fault } = req
  const isLong = Number(headers['content-length'] ?? 0) > MAX_DISCARDED
  // A body that was announced with 100-continue and never requested would be taken for the next request.
  if (closes || fault || isLong || headers.expect !== undefined) {
    lingerAtEnd(socket)
    return true
  }
  let size = 0
  const discard = (chunk: Buffer): void => {
    size += chunk.length
    if (size <= MAX_DISCARDED) return
    req.off('data', discard)
    lingerAtEnd(socket)
    if (res.writableFinished) socket.destroySoon()
    else res.once('finish', () => socket.destroySoon())
  }
  req.on('data', discard)
  req.resume()
  return false
}
