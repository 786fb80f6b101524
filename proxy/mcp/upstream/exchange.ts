import { Readable } from 'node:stream'
import type { Dispatcher } from 'undici'
import { type CallAuthority, confirmAuthority, OVERTAKEN } from '../../../plugins/call-authority.ts'
import type { HangupSignal } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { BYTES_AT_ONCE } from '../../../plugins/turns.ts'
import { VERSION } from '../../boot/version.ts'
import {
  CONNECTION_ABANDONED,
  EgressRefused,
  type OpeningConnection,
  openingStorage,
} from '../../egress/agent.ts'
import { AnswerBuffer } from '../../egress/incoming.ts'
import { longBody } from '../../egress/long-body.ts'
import type { McpConnection } from './connections.ts'
import { connectionProblem, McpUpstreamError, mcpTimeout, mcpUpstreamFailure } from './errors.ts'

export const USER_AGENT = `sallyport/${VERSION}`

/** The amount of an unwanted rest of a body that is read, so that its connection can serve again. */
const REST_BYTES = 65_536
/** The time that this may take. ms. */
const REST_MS = 1_000

export type ResponseHeaders = Readonly<Record<string, string | readonly string[] | undefined>>

/** Names and values in turn. */
export type HeaderList = readonly string[]

export interface OutgoingRequest {
  readonly method: 'POST' | 'GET' | 'DELETE'
  /** Headers besides those of the connection, `host` and `content-length`. */
  readonly headers: HeaderList
  readonly body: string | Buffer | null
  /** The time for all of it, from the connection to the last byte of the answer. ms. */
  readonly totalMs: number
  /** The limit that `totalMs` is the rest of. Default: itself. ms. */
  readonly limitMs?: number
  /** The request is destroyed at once when nobody waits for it any more, at whatever stage it is. */
  readonly hangup: HangupSignal
  /** The authority of the request: it is sent only if this authority stands as it leaves. */
  readonly authority: CallAuthority
}

export interface McpResponseHead {
  readonly status: number
  readonly headers: ResponseHeaders
  readonly body: McpResponseBody
}

/** The body of an answer. Nothing is read ahead beyond one reading of the connection. */
export interface McpResponseBody extends AsyncIterable<Buffer> {
  /**
   * Reads the bytes that came together; null at the end. Throws or rejects with McpUpstreamError, or the
   * reason why nobody waits any more. One reader at a time.
   */
  readonly read: () => Buffer | null | Promise<Buffer | null>
  /** True once all of it has come, read or not. */
  readonly complete: boolean
  /** Calls `told` once nothing more can come: at once if that is so already. */
  readonly onceOver: (told: () => void) => void
  readonly destroy: () => void
}

/**
 * Sends one HTTP request and resolves with the head of the answer, whatever its status. A connection that
 * could not be made is tried once more; a request of which a byte may have gone out never is. Rejects with
 * {@link McpUpstreamError}, or the reason why nobody waits any more.
 */
export const exchangeHttp = (
  connection: McpConnection,
  outgoing: OutgoingRequest,
): Promise<McpResponseHead> => new McpHttpExchange(connection, outgoing).head

/** One request under way. It has two ends, its head and its body, and fails at the one that is due. */
class McpHttpExchange implements Dispatcher.DispatchHandler, McpResponseBody {
  readonly #connection: McpConnection
  readonly #outgoing: OutgoingRequest
  readonly #head = Promise.withResolvers<McpResponseHead>()
  readonly #timer: NodeJS.Timeout
  readonly #opening: OpeningConnection = { end: null }
  /** Null until the connection stands and the request goes out. */
  #controller: Dispatcher.DispatchController | null = null
  #isSecondTry = false
  #hasHead = false
  /** The bytes of one reading of the connection until they are read. */
  readonly #come = new AnswerBuffer()
  #reader: PromiseWithResolvers<Buffer | null> | null = null
  #complete = false
  #failed: { readonly reason: unknown } | null = null
  #told: (() => void) | null = null

  constructor(connection: McpConnection, outgoing: OutgoingRequest) {
    const { totalMs, limitMs: ms = totalMs, hangup } = outgoing
    this.#connection = connection
    this.#outgoing = outgoing
    const passed = (): McpUpstreamError => mcpTimeout('no whole answer', { setting: 'total_timeout_ms', ms })
    this.#timer = setTimeout(() => this.#end(passed()), totalMs)
    if (hangup.gone) this.#hungUp()
    else {
      hangup.onGone(this.#hungUp)
      this.#dispatch()
    }
  }

  get head(): Promise<McpResponseHead> {
    return this.#head.promise
  }

  get complete(): boolean {
    return this.#complete
  }

  read(): Buffer | null | Promise<Buffer | null> {
    if (this.#failed) throw this.#failed.reason
    if (!this.#come.isEmpty) return this.#come.takeAll()
    if (this.#complete) return null
    this.#reader = Promise.withResolvers()
    this.#goOn()
    return this.#reader.promise
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer> {
    for (let piece = await this.read(); piece !== null; piece = await this.read()) yield piece
  }

  onceOver(told: () => void): void {
    if (this.#isOver) told()
    else this.#told = told
  }

  destroy(): void {
    this.#end(new Error('not wanted any more'))
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    // It may have waited for its connection. Thrown, it leaves the connection as it is.
    if (!this.#outgoing.authority.unchanged) throw OVERTAKEN
    // A pool that means to send it again, on another connection, must not: it may have acted already.
    const again = this.#controller !== null
    this.#controller = controller
    if (again) this.#end(new McpUpstreamError('unreachable', 'the connection broke'))
    if (this.#failed) controller.abort(asError(this.#failed.reason))
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
  ): void {
    // An announcement (1xx); the clock goes on.
    if (status < 200) return
    this.#hasHead = true
    this.#head.resolve({ status, headers, body: this })
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#come.isEmpty) queueMicrotask(this.#handOver)
    this.#come.add(controller, chunk)
  }

  onResponseEnd(): void {
    this.#complete = true
    this.#reader?.resolve(this.#come.isEmpty ? null : this.#come.takeAll())
    this.#over()
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    if (this.#isOver) return
    if (error === OVERTAKEN) this.#dispatch()
    else if (this.#controller === null && !this.#isSecondTry && isWorthAnotherTry(error)) {
      this.#isSecondTry = true
      this.#dispatch()
    } else this.#fail(error instanceof Refusal ? error : this.#failureOf(error))
  }

  #dispatch(): void {
    const { authority } = this.#outgoing
    if (this.#isOver) return
    if (authority.unchanged) this.#send()
    else
      confirmAuthority(authority).then(
        () => this.#dispatch(),
        (error: unknown) => this.#end(error),
      )
  }

  #send(): void {
    const { agent, origin, path, headers } = this.#connection
    const { method, body, headers: own, authority } = this.#outgoing
    const isLong = body !== null && body.length > BYTES_AT_ONCE
    const sent = {
      origin,
      path,
      method,
      body: isLong ? Readable.from(longBody([body], authority, PACE), { objectMode: false }) : body,
      headers: [...own, ...headers, ...(isLong ? ['content-length', String(Buffer.byteLength(body))] : [])],
    }
    openingStorage.run(this.#opening, () => agent.dispatch(sent, this))
  }

  // Never at each piece: the parser would be handed the rest of its reading once for every one of them.
  readonly #handOver = (): void => {
    if (this.#isOver || this.#come.isEmpty) return
    // Also if somebody waits: the next reading has a turn of the loop of its own.
    this.#controller?.pause()
    if (!this.#reader) return
    this.#reader.resolve(this.#come.takeAll())
    this.#reader = null
  }

  #goOn(): void {
    const controller = this.#controller
    if (!controller?.paused) return
    // With a turn of the loop between, so that a fast upstream leaves room for everybody else.
    setImmediate(() => {
      if (this.#isOver) return
      this.#come.resume(controller)
    })
  }

  readonly #hungUp = (): void => this.#end(this.#outgoing.hangup.signal.reason)

  #end(reason: unknown): void {
    if (this.#isOver) return
    this.#fail(reason)
    if (this.#controller) this.#controller.abort(asError(reason))
    else this.#opening.end?.(CONNECTION_ABANDONED)
  }

  #fail(reason: unknown): void {
    this.#failed = { reason }
    this.#come.takeAll()
    // Once the head has been handed over it is the body that fails.
    this.#head.reject(reason)
    this.#reader?.reject(reason)
    this.#over()
  }

  get #isOver(): boolean {
    return this.#complete || this.#failed !== null
  }

  #over(): void {
    clearTimeout(this.#timer)
    this.#outgoing.hangup.offGone(this.#hungUp)
    this.#told?.()
  }

  #failureOf(error: Error): McpUpstreamError {
    const missed = MISSED.get(codeOf(error))
    const { answerMs: ms } = this.#connection
    if (missed !== undefined) return mcpTimeout(missed, { setting: 'answer_timeout_ms', ms })
    if (this.#hasHead) return failureInBody(error)
    const isPlain = this.#connection.origin.startsWith('http:')
    return this.#controller ? failureBeforeHead(error, isPlain) : failureToConnect(error)
  }
}

/** The pace of a long body. Characters or bytes. */
const PACE = { atOnce: 131_072, perTurn: 131_072 }

const asError = (reason: unknown): Error => (reason instanceof Error ? reason : new Error(String(reason)))

/** Node's or the client's code of an error, e.g. `ECONNREFUSED`. Its message may quote the answer. */
const codeOf = (error: Error): string =>
  'code' in error && typeof error.code === 'string' ? error.code : error.name

/** The reasons of refused addresses that a setting allows. */
const PRIVATE_REASONS: readonly string[] = ['loopback', 'private']

function failureToConnect(error: Error): McpUpstreamError {
  const code = codeOf(error)
  if (error instanceof EgressRefused) {
    const cure = PRIVATE_REASONS.includes(error.reason)
      ? ': MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS=true allows it'
      : ''
    return new McpUpstreamError('unreachable', `its address is refused (${error.reason})${cure}`, {
      cause: error,
    })
  }
  if (code === 'UND_ERR_INVALID_ARG')
    return mcpUpstreamFailure('the request cannot be written', { cause: error })
  // Without a code it is a sentence of ours.
  const problem = code === 'Error' ? error.message.slice(0, MAX_SENTENCE) : connectionProblem(code)
  return new McpUpstreamError('unreachable', problem, { cause: error })
}

const MAX_SENTENCE = 200

/** Tells of a connection that could not be made whether another one might be. */
const isWorthAnotherTry = (error: Error): boolean =>
  !(error instanceof EgressRefused) && !FINAL.includes(codeOf(error))

const FINAL = ['UND_ERR_INVALID_ARG', 'UND_ERR_CLOSED', 'UND_ERR_DESTROYED']

/** Names for what did not come, by the code of a passed limit. */
const MISSED: ReadonlyMap<string, string> = new Map([
  ['UND_ERR_HEADERS_TIMEOUT', 'no answer'],
  ['UND_ERR_BODY_TIMEOUT', 'no more of the answer'],
])

/** `isPlain`: the request was not sent over TLS. */
function failureBeforeHead(error: Error, isPlain: boolean): McpUpstreamError {
  const code = codeOf(error)
  const hint = isPlain ? '; if it speaks TLS there, write https:// in endpoint_url' : ''
  // The cause would hold the text in place of HTTP.
  if (error.name === 'HTTPParserError') return mcpUpstreamFailure(`the answer is not HTTP (${code})${hint}`)
  if (code === 'UND_ERR_HEADERS_OVERFLOW') return mcpUpstreamFailure('the head of the answer is too large')
  // TLS 1.3 tells only then that the client's certificate is refused.
  if (code.includes('_ALERT_')) return new McpUpstreamError('unreachable', connectionProblem(code))
  return new McpUpstreamError('unreachable', `the connection broke before an answer (${code})${hint}`)
}

function failureInBody(error: Error): McpUpstreamError {
  const code = codeOf(error)
  return mcpUpstreamFailure(`the answer was cut short (${code})`)
}

/** Returns the media type, lower case and without parameters; empty if there is none, or more than one. */
export function mediaTypeOf({ 'content-type': type }: ResponseHeaders): string {
  return typeof type === 'string' ? (type.split(';', 1)[0] ?? '').trim().toLowerCase() : ''
}

/** Tells whether the body is something other than its media type says (RFC 9110 §8.4). */
export function isContentEncoded({ 'content-encoding': encoding }: ResponseHeaders): boolean {
  return encoding !== undefined && !(typeof encoding === 'string' && encoding.toLowerCase() === 'identity')
}

/** Reads the rest of a body and forgets it; cuts off one that is long or slow. */
export function drainBody(body: McpResponseBody): void {
  if (!body.complete) void drainRest(body)
}

async function drainRest(body: McpResponseBody): Promise<void> {
  const timer = setTimeout(() => body.destroy(), REST_MS).unref()
  let left = REST_BYTES
  try {
    for await (const piece of body) {
      left -= piece.length
      if (left < 0) body.destroy()
    }
  } catch {
    // It broke, or was cut off: nobody wanted it.
  } finally {
    clearTimeout(timer)
  }
}
