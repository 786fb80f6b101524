import { Readable } from 'node:stream'
import type { Dispatcher } from 'undici'
import { Collector } from '../../../plugins/collect.ts'
import { AT_ONCE } from '../../../plugins/turns.ts'
import { EgressRefused } from '../../egress/agent.ts'
import type { Connection } from './connections.ts'
import { failed, McpUpstreamError } from './errors.ts'
import { longBody } from './long-body.ts'

/** The amount of an unwanted rest of a body that is read, so that its connection can serve again. */
const REST_BYTES = 65_536
/** The time that this may take. ms. */
const REST_MS = 1_000

export type ResponseHeaders = Readonly<Record<string, string | readonly string[] | undefined>>

export interface Outgoing {
  readonly method: 'POST' | 'DELETE'
  /** Beside the credentials, which the connection brings, `host` and `content-length`. */
  readonly headers: Readonly<Record<string, string>>
  readonly body: string | Buffer | null
  /** For all of it, from the connection to the last byte of the answer. ms. */
  readonly totalMs: number
  /** The request is destroyed at once when it fires, at whatever stage it is. */
  readonly signal: AbortSignal
}

/** The head of an answer, and its body as it comes. */
export interface Head {
  readonly status: number
  readonly headers: ResponseHeaders
  /**
   * Errors with McpUpstreamError or the signal's reason. Its chunks are what came together. Nothing is read
   * ahead beyond one of them. Destroying it ends the request.
   */
  readonly body: Readable
}

/**
 * Sends one HTTP request and resolves with the head of the answer, whatever its status. A connection that
 * could not be made is tried once more; a request of which a byte may have gone out never is, for it may have
 * acted. Throws {@link McpUpstreamError}, or the signal's reason.
 */
export async function exchange(connection: Connection, outgoing: Outgoing): Promise<Head> {
  try {
    return await new Exchange(connection, outgoing).head
  } catch (error) {
    const again = error instanceof McpUpstreamError && error.cure === 'reconnect'
    if (!again) throw error
    return new Exchange(connection, outgoing).head
  }
}

/** One request under way. It has two ends, its head and its body, and fails at the one that is due. */
class Exchange implements Dispatcher.DispatchHandler {
  readonly #outgoing: Outgoing
  readonly #head = Promise.withResolvers<Head>()
  readonly #timer: NodeJS.Timeout
  /** Null until the connection stands and the request goes out. */
  #controller: Dispatcher.DispatchController | null = null
  #body: Readable | null = null
  /** What came with one reading of the connection, however many pieces it was sent in. */
  readonly #come = new Collector(Number.POSITIVE_INFINITY)
  /** True: the connection has been told to wait, and has handed over one more piece before it did. */
  #waits = false
  #complete = false
  /** The reason, where this side ended it. */
  #ended: { readonly reason: unknown } | null = null

  constructor({ agent, url, credentials }: Connection, outgoing: Outgoing) {
    const { method, body, headers, totalMs, signal } = outgoing
    this.#outgoing = outgoing
    this.#timer = setTimeout(() => this.#end(new McpUpstreamError('timeout', 'it took too long')), totalMs)
    if (signal.aborted) {
      this.#aborted()
      return
    }
    signal.addEventListener('abort', this.#aborted, { once: true })
    const path = `${url.pathname}${url.search}`
    const long = body !== null && body.length > AT_ONCE ? longBody(body) : null
    agent.dispatch(
      {
        origin: url.origin,
        path,
        method,
        body: long?.body ?? body,
        headers: { ...headers, ...credentials.headers, ...long?.headers },
      },
      this,
    )
  }

  get head(): Promise<Head> {
    return this.#head.promise
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    // A pool that means to send it again, on another connection, must not: it may have acted already.
    const again = this.#controller !== null
    this.#controller = controller
    if (again) this.#end(new McpUpstreamError('unreachable', 'the connection broke'))
    else if (this.#ended) controller.abort(asError(this.#ended.reason))
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
  ): void {
    // An announcement (1xx); the clock goes on.
    if (status < 200) return
    const body = new Readable({
      highWaterMark: 1,
      read: () => this.#goOn(controller),
      destroy: (error, done) => {
        if (!this.#complete) controller.abort(error ?? new Error('not wanted any more'))
        done(error)
      },
    })
    // A reader hears its error; without a listener of its own, one that nobody reads would end the process.
    body.on('error', () => {})
    body.once('close', () => this.#release())
    this.#body = body
    this.#head.resolve({ status, headers, body })
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#come.length === 0) queueMicrotask(() => this.#handOver(controller))
    this.#come.add(chunk)
    if (!controller.paused) return
    // The connection is at its end and hands over the rest; to stop it at each piece would copy the rest anew
    // each time.
    if (this.#waits) controller.resume()
    this.#waits = !this.#waits
  }

  onResponseEnd(controller: Dispatcher.DispatchController): void {
    this.#handOver(controller)
    this.#complete = true
    this.#body?.push(null)
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#complete = true
    const reason = this.#ended ? this.#ended.reason : this.#failure(error)
    if (this.#body) this.#body.destroy(asError(reason))
    else this.#reject(reason)
  }

  #handOver(controller: Dispatcher.DispatchController): void {
    if (this.#come.length === 0) return
    const bytes = this.#come.bytes()
    this.#come.clear()
    // Never at each piece: the parser would be handed what is left of its reading once for every one of them.
    if (this.#body?.push(bytes) === false) controller.pause()
  }

  #goOn(controller: Dispatcher.DispatchController): void {
    if (!controller.paused) return
    // With a turn of the loop between, so that a fast upstream leaves room for everybody else.
    setImmediate(() => {
      if (this.#complete) return
      this.#waits = false
      controller.resume()
    })
  }

  readonly #aborted = (): void => this.#end(this.#outgoing.signal.reason)

  #end(reason: unknown): void {
    this.#ended ??= { reason }
    if (this.#body) this.#body.destroy(asError(reason))
    else {
      this.#reject(reason)
      this.#controller?.abort(asError(reason))
    }
  }

  #reject(reason: unknown): void {
    this.#head.reject(reason)
    this.#release()
  }

  #release(): void {
    clearTimeout(this.#timer)
    this.#outgoing.signal.removeEventListener('abort', this.#aborted)
  }

  #failure(error: Error): McpUpstreamError {
    if (this.#body) return failureInBody(error)
    return this.#controller ? failureBeforeHead(error) : failureToConnect(error)
  }
}

const asError = (reason: unknown): Error => (reason instanceof Error ? reason : new Error(String(reason)))

/** Node's or the client's code of an error, e.g. `ECONNREFUSED`. Its message may quote what came. */
const codeOf = (error: Error): string =>
  'code' in error && typeof error.code === 'string' ? error.code : error.name

function failureToConnect(error: Error): McpUpstreamError {
  const code = codeOf(error)
  if (error instanceof EgressRefused) {
    return new McpUpstreamError('unreachable', 'its address is refused', { cause: error })
  }
  if (code === 'UND_ERR_INVALID_ARG') return failed('the request cannot be written', { cause: error })
  const closed = code === 'UND_ERR_CLOSED' || code === 'UND_ERR_DESTROYED'
  return new McpUpstreamError('unreachable', code, { cause: error, ...(!closed && { cure: 'reconnect' }) })
}

function failureBeforeHead(error: Error): McpUpstreamError {
  const code = codeOf(error)
  if (code === 'UND_ERR_HEADERS_TIMEOUT') return new McpUpstreamError('timeout', 'no answer in time')
  // The cause would hold what came in place of HTTP.
  if (error.name === 'HTTPParserError') return failed(`the answer is not HTTP (${code})`)
  if (code === 'UND_ERR_HEADERS_OVERFLOW') return failed('the head of the answer is too large')
  return new McpUpstreamError('unreachable', `the connection broke before an answer (${code})`)
}

function failureInBody(error: Error): McpUpstreamError {
  const code = codeOf(error)
  if (code === 'UND_ERR_BODY_TIMEOUT') return new McpUpstreamError('timeout', 'the answer stalled')
  return failed(`the answer was cut short (${code})`)
}

/** Returns the media type, lower case and without parameters; empty where there is none, or more than one. */
export function mediaTypeOf({ 'content-type': type }: ResponseHeaders): string {
  return typeof type === 'string' ? (type.split(';', 1)[0] ?? '').trim().toLowerCase() : ''
}

/** Tells whether the body is something other than its media type says (RFC 9110 §8.4). */
export function isEncoded({ 'content-encoding': encoding }: ResponseHeaders): boolean {
  return encoding !== undefined && !(typeof encoding === 'string' && encoding.toLowerCase() === 'identity')
}

/** Reads the rest of a body and forgets it; cuts off one that is long or slow. */
export function drain(body: Readable): void {
  if (body.destroyed) return
  const timer = setTimeout(() => body.destroy(), REST_MS).unref()
  body.once('close', () => clearTimeout(timer))
  let left = REST_BYTES
  body.on('data', (chunk: Buffer) => {
    left -= chunk.length
    if (left < 0) body.destroy()
  })
}
