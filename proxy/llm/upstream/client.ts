import { EventEmitter } from 'node:events'
import type { ClientRequest, IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Stream } from 'node:stream'
import { TLSSocket } from 'node:tls'
import { ProxyServer, type ServerOptions } from 'http-proxy-3'
import type { CatalogPermit, Granted } from '../../../plugins/permit.ts'
import { AT_ONCE } from '../../../plugins/turns.ts'
import { type PacedAgents, pacedAgents } from '../../egress/paced-agents.ts'
import { UpstreamError } from './error.ts'
import { writeLong } from './long-body.ts'

/** An upstream may announce an answer so often (1xx) before it gives one. */
const MAX_INFORMATION = 16
/** A pooled connection is dropped after so long without a request, before the other side does it. ms. */
const POOL_IDLE_MS = 20_000
/** No answer of a model takes longer; a stream that is kept alive with nothing in it might (threat 38). ms. */
const MAX_DURATION_MS = 3_600_000

export interface Timeouts {
  /** The time until the connection stands, name look-up and TLS handshake included. ms. */
  readonly connectMs: number
  /** The time from then until the answer's head. ms. */
  readonly firstByteMs: number
  /** The time between two pieces of the answer, while we are ready to take them. ms. */
  readonly idleMs: number
}

export interface UpstreamRequest {
  /** Allows it: of a granted call, or of the gateway's own reading. */
  readonly permit: Granted | CatalogPermit
  /** No other method: the library rewrites the framing of DELETE and OPTIONS (docs/threats.md#t1). */
  readonly method: 'GET' | 'POST'
  /** Alone decides where the request goes and its path. */
  readonly url: URL
  /** The whole set, `host` and `content-length` included. Nothing is added but `connection`. */
  readonly headers: Readonly<Record<string, string>>
  /** Sent one after the other. Empty: no body. */
  readonly body: readonly Buffer[]
  readonly timeouts: Timeouts
  /** The caller hung up: the upstream request is destroyed at once, before or during the answer. */
  readonly signal: AbortSignal
}

export interface UpstreamAnswer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  /**
   * Errors, and never just ends, where the answer is cut short or stalls. Somebody must read or destroy it.
   */
  readonly stream: IncomingMessage
}

export interface Upstream {
  /**
   * Resolves with the head of the answer. Rejects with {@link UpstreamError}, or with the signal's reason.
   */
  readonly call: (request: UpstreamRequest) => Promise<UpstreamAnswer>
  /** Drops the pooled connections. Requests under way go on. */
  readonly close: () => void
}

/**
 * Opens the process's connections to LLM providers: http-proxy-3 behind a fence. The library sees neither the
 * caller's request nor its response but stand-ins built here, so nothing of the caller can reach a provider
 * by it (docs/threats.md#t1 to docs/threats.md#t3), and it writes no response: the answer is handed back as a
 * stream (docs/threats.md#t4). Redirects are not followed. TLS is always verified.
 *
 * A request that was sent on a pooled connection and died there with a reset and no byte of an answer is sent
 * once more on a fresh connection. That is nearly always the other side closing an idle connection while we
 * were writing to it. The provider may in rare cases have begun to work on it, so the price is a completion
 * paid for twice, which a retrying SDK would cause as well after the 502; a chat completion changes nothing
 * else at a provider.
 */
export function openUpstream(): Upstream {
  // With this set the library leaves node:http for fetch: other framing, other timeouts, redirects followed.
  if (process.env.FORCE_FETCH_PATH !== undefined) {
    throw new Error('FORCE_FETCH_PATH must not be set: it changes how http-proxy-3 sends requests')
  }
  const pooled = agents(true)
  const fresh = agents(false)
  const proxy = fencedProxy()
  return {
    call: async (request) => {
      request.signal.throwIfAborted()
      try {
        return await new Exchange(request).run(proxy, pooled)
      } catch (error) {
        if (!(error instanceof UpstreamError) || !error.stale || request.signal.aborted) throw error
        return await new Exchange(request).run(proxy, fresh)
      }
    },
    close: () => {
      for (const agent of [pooled.http, pooled.https, fresh.http, fresh.https]) agent.destroy()
    },
  }
}

function agents(keepAlive: boolean): PacedAgents {
  const options = { keepAlive, scheduling: 'lifo', ...(keepAlive && { timeout: POOL_IDLE_MS }) } as const
  return pacedAgents(options)
}

/** Exchanges under way, by the stand-in that the library hands back in its events. */
const exchanges = new WeakMap<object, Exchange>()

function fencedProxy(): ProxyServer {
  const proxy = new ProxyServer({ ...FENCE })
  proxy.on('proxyReq', (outgoing, _request, response, _options, socket) =>
    exchanges.get(response)?.sending(outgoing, socket),
  )
  proxy.on('proxyRes', (incoming, _request, response) => exchanges.get(response)?.answered(incoming))
  return proxy
}

/** One request under way, until the head of its answer. */
class Exchange {
  readonly #request: UpstreamRequest
  readonly #response = responseStandIn()
  readonly #answer = Promise.withResolvers<UpstreamAnswer>()
  #timer: NodeJS.Timeout | null = null
  #settled = false
  #connected = false
  #outgoing: ClientRequest | null = null
  #bytesBefore = 0
  #informed = 0

  constructor(request: UpstreamRequest) {
    this.#request = request
  }

  run(proxy: ProxyServer, { http, https }: PacedAgents): Promise<UpstreamAnswer> {
    const { url, body, signal } = this.#request
    const isEncrypted = url.protocol === 'https:'
    exchanges.set(this.#response, this)
    signal.addEventListener('abort', this.#aborted, { once: true })
    proxy.web(
      requestStandIn(this.#request),
      this.#response,
      { target: url, agent: isEncrypted ? https : http, buffer: bodyStandIn(body, isEncrypted) },
      (error) => this.#failed(error),
    )
    return this.#answer.promise
  }

  /** The request has a socket, which may still be connecting. */
  sending(outgoing: ClientRequest, socket: Socket): void {
    const { connectMs, firstByteMs } = this.#request.timeouts
    this.#outgoing = outgoing
    this.#bytesBefore = socket.bytesRead
    outgoing.on('information', () => {
      this.#informed += 1
      if (this.#informed > MAX_INFORMATION) this.#fail(new UpstreamError('reset', 'too many 1xx answers'))
    })
    // Without a listener Node drops a 101, and the request would wait for its answer.
    outgoing.on('upgrade', (_answer, switched) => {
      switched.destroy()
      this.#fail(new UpstreamError('reset', 'switched to another protocol'))
    })
    const connected = () => {
      this.#connected = true
      this.#limit(firstByteMs, 'timeout', 'no answer in time')
    }
    if (outgoing.reusedSocket) {
      connected()
      return
    }
    this.#limit(connectMs, 'connect', 'no connection in time')
    socket.once(socket instanceof TLSSocket ? 'secureConnect' : 'connect', connected)
  }

  answered(stream: IncomingMessage): void {
    if (this.#settled) return
    this.#settle()
    const { timeouts, signal } = this.#request
    guardStream(stream, timeouts.idleMs, signal)
    this.#answer.resolve({ status: stream.statusCode ?? 0, headers: stream.headers, stream })
  }

  readonly #aborted = (): void => this.#fail(this.#request.signal.reason)

  #failed(error: Error): void {
    const code = 'code' in error && typeof error.code === 'string' ? error.code : ''
    const reset = code === 'ECONNRESET' || code === 'EPIPE'
    const silent = this.#outgoing?.socket?.bytesRead === this.#bytesBefore
    const stale = reset && silent && this.#outgoing?.reusedSocket === true
    const kind = this.#connected ? 'reset' : 'connect'
    this.#fail(new UpstreamError(kind, code || error.message, { cause: error, stale }))
  }

  #limit(ms: number, kind: 'connect' | 'timeout', message: string): void {
    if (this.#timer) clearTimeout(this.#timer)
    this.#timer = this.#settled ? null : setTimeout(() => this.#fail(new UpstreamError(kind, message)), ms)
  }

  #fail(error: unknown): void {
    if (this.#settled) return
    this.#settle()
    // Tells the library that its client has gone: it destroys the request.
    this.#response.emit('close')
    this.#answer.reject(error)
  }

  #settle(): void {
    this.#settled = true
    if (this.#timer) clearTimeout(this.#timer)
    this.#request.signal.removeEventListener('abort', this.#aborted)
  }
}

/**
 * Destroys the stream, with an error, when nothing comes for `idleMs` while nothing is waiting to be read,
 * when it has been open for an hour, or when `signal` fires (docs/threats.md#f-15, #f-19). A reader that
 * holds the stream back stops that clock.
 */
function guardStream(stream: IncomingMessage, idleMs: number, signal: AbortSignal): void {
  const { socket } = stream
  const idle = () => {
    // Something has come that a slow client has not taken yet: not the upstream's doing.
    if (stream.complete || stream.readableLength > 0) socket.setTimeout(idleMs)
    else stream.destroy(new UpstreamError('timeout', 'the answer stalled'))
  }
  const aborted = () => stream.destroy()
  const deadline = setTimeout(
    () => stream.destroy(new UpstreamError('timeout', 'the answer took longer than an hour')),
    MAX_DURATION_MS,
  )
  deadline.unref()
  const release = () => {
    clearTimeout(deadline)
    socket.off('timeout', idle)
    signal.removeEventListener('abort', aborted)
  }
  socket.setTimeout(idleMs)
  socket.on('timeout', idle)
  signal.addEventListener('abort', aborted, { once: true })
  stream.once('close', release)
  // The reader hears the error through `errored` or its own listener; without one here Node would keep it to
  // itself.
  stream.on('error', release)
}

/*
 * The objects that http-proxy-3 gets in place of a caller's request and response. Each has the members that
 * the library reads, and nothing that came from outside. `test/proxy/llm/upstream/contract.test.ts` fails
 * when it reads another.
 */

/** Answers are handed back, not written; the target alone decides the path; TLS is verified. */
export const FENCE: Readonly<ServerOptions> = { selfHandleResponse: true, ignorePath: true, secure: true }

interface RequestHead {
  readonly method: string
  readonly headers: Readonly<Record<string, string>>
}

/** Stands for the caller's request. */
export function requestStandIn({ method, headers }: RequestHead): IncomingMessage {
  const standIn = Object.assign(new EventEmitter(), {
    method,
    url: '/',
    headers: { ...headers },
    httpVersionMajor: 1,
    socket: { destroyed: false },
  })
  // These members are all that the library reads.
  return standIn as unknown as IncomingMessage
}

/**
 * Stands for the caller's response. Its event `close` makes the library destroy the request, at whatever
 * stage that is.
 */
export function responseStandIn(): ServerResponse {
  const members = { headersSent: false, writableFinished: false, finished: false }
  // These members, and `on`, are all that the library reads.
  return Object.assign(new EventEmitter(), members) as unknown as ServerResponse
}

/** Stands for a stream of the body, which the library pipes to the request. */
export function bodyStandIn(body: readonly Buffer[], isEncrypted: boolean): Stream {
  const isLong = body.reduce((sum, { length }) => sum + length, 0) > AT_ONCE
  const pipe = (request: ClientRequest): void => {
    if (isLong) writeLong(body, request, isEncrypted)
    else request.end(body.length > 1 ? Buffer.concat(body) : body[0])
  }
  // It is all that the library calls.
  return { pipe } as unknown as Stream
}
