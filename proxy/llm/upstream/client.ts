import type { IncomingMessage, ServerResponse } from 'node:http'
import { Readable, type Stream } from 'node:stream'
import { ProxyServer, type ServerOptions } from 'http-proxy-3'
import type { Dispatcher } from 'undici'
import { HostNameCache } from '../../../db/host-names/kept-names.ts'
import { Agent as HttpAgent } from '../../../db/support/node-http.ts'
import { type CallAuthority, confirmAuthority, OVERTAKEN } from '../../../plugins/call-authority.ts'
import { ByteCollector } from '../../../plugins/collect.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { CONNECTION_ABANDONED, type OpeningConnection, openingStorage } from '../../egress/agent.ts'
import { longBody } from '../../egress/long-body.ts'
import { PacedAgents } from '../../egress/paced-agents.ts'
import {
  brokenBody,
  connectFailure,
  failureOfRequest,
  hangupReason,
  type LlmUpstream,
  type UpstreamAnswer,
  UpstreamError,
  type UpstreamRequest,
} from './answer.ts'
import { isShortJson, joinHeaders } from './headers.ts'

/** An upstream may announce an answer so often (1xx) before it gives one. */
const MAX_INFORMATION = 16
/** The longest answer of any model; a stream that is kept alive with nothing in it might be longer. ms. */
const MAX_DURATION_MS = 3_600_000

export type { LlmUpstream } from './answer.ts'

type OnUpstreamAnswer = (answer: UpstreamAnswer) => void
type OnUpstreamFailure = (error: Error) => void

interface LlmUpstreamOptions {
  /** The longest time of an answer while something of it comes. ms. Default: an hour. */
  readonly maxDurationMs?: number
  /** The look-up of providers' names. Default: one apart from all others. */
  readonly names?: Pick<HostNameCache, 'lookup'>
}

/**
 * Opens the process's connections to LLM providers: http-proxy-3, which sends by undici
 * (docs/decisions/024-http-proxy-3-sends-by-undici.md). In place of the caller's request and response the
 * library gets stand-ins without a header (docs/threats.md#t1 to docs/threats.md#t3), and the answer is
 * handed back outside it (docs/threats.md#t4). Redirects are not followed. TLS is always verified.
 *
 * A request that died on a pooled connection with a reset and no byte of an answer is sent once more on a
 * fresh one. If the provider had begun to work after all, a completion is paid for twice, as by a retrying
 * SDK after the 502.
 */
export function openUpstream({
  maxDurationMs = MAX_DURATION_MS,
  names = new HostNameCache(),
}: LlmUpstreamOptions = {}): LlmUpstream {
  const proxy = new ProxyServer({ ...PROXY_SERVER_OPTIONS })
  const pooled = new PacedAgents({ keepAlive: true, names })
  const fresh = new PacedAgents({ keepAlive: false, names }, pooled.turns)
  const send = (
    request: UpstreamRequest,
    agents: PacedAgents,
    answered: OnUpstreamAnswer,
    failed: OnUpstreamFailure,
  ): void => {
    const { fetch } = new LlmExchange(request, agents, maxDurationMs, answered)
    const sent = { target: request.url, buffer: bodyStandIn(request.body, request.permit.authority), fetch }
    proxy.web(REQUEST_STAND_INS[request.method], RESPONSE_STAND_IN, sent, failed)
  }
  return {
    call: (request) =>
      new Promise((answered, failed) => {
        send(request, pooled, answered, (error) => {
          const isStale = error instanceof UpstreamError && error.stale
          if (isStale && !request.hangup.gone) send(request, fresh, answered, failed)
          else failed(error)
        })
      }),
    close: () => {
      pooled.close()
      fresh.close()
    },
  }
}

/*
 * The objects that http-proxy-3 gets in place of a caller's request and response: the members that the library
 * reads, without anything that came from outside. `test/proxy/llm/upstream/contract.test.ts` fails when it reads
 * another.
 */

/** Answers are handed back, not written. Without an agent the library makes a header of its own. */
export const PROXY_SERVER_OPTIONS: Readonly<ServerOptions> = {
  selfHandleResponse: true,
  ignorePath: true,
  agent: new HttpAgent(),
}

const NOTHING = Buffer.alloc(0)
const ignore = (): void => {}
const requestStandIn = (method: string): IncomingMessage =>
  // These members are all that the library reads.
  ({ method, url: '', headers: {}, httpVersionMajor: 1, on: ignore }) as unknown as IncomingMessage

/** Stand for callers' requests. Their headers, of which there are none, would enter its `Headers`. */
export const REQUEST_STAND_INS = { GET: requestStandIn('GET'), POST: requestStandIn('POST') }

/** Stands for every caller's response: these members are all that the library reads. */
export const RESPONSE_STAND_IN = { headersSent: false, writableEnded: false } as unknown as ServerResponse

/**
 * The pace of a long body: the words of a provider that has hung up meanwhile would be lost if it were slower.
 * Bytes.
 */
const PACE = { atOnce: 262_144, perTurn: 2_097_152 }

/** Makes the body of a request, which the library hands to `fetch` as it is. */
export function bodyStandIn(parts: readonly Buffer[], authority: CallAuthority): Stream {
  const length = parts.reduce((sum, part) => sum + part.length, 0)
  let body: unknown = parts[0] ?? null
  if (length > PACE.atOnce) body = longBody(parts, authority, PACE)
  else if (parts.length > 1) body = Buffer.concat(parts)
  // The library takes it for a stream, and calls nothing of it.
  return body as Stream
}

/** The library's view of an answer: these members are all that it reads. */
export const ANSWER_STAND_IN = {
  status: 200,
  statusText: '',
  headers: new Map(),
  body: null,
} as unknown as Response

/** One request under way: undici hands it the pieces, and it makes an answer of them. */
class LlmExchange implements Dispatcher.DispatchHandler {
  readonly #request: UpstreamRequest
  readonly #agents: PacedAgents
  readonly #maxDurationMs: number
  readonly #answered: OnUpstreamAnswer
  #fail: OnUpstreamFailure = ignore
  #passed: (response: Response) => void = ignore
  #send: () => void = ignore
  readonly #opening: OpeningConnection = { end: null }
  /** Null until the request goes out. */
  #controller: Dispatcher.DispatchController | null = null
  #sentAt = 0
  /** True: on a pooled connection, and no byte of an answer has come. */
  #mayBeStale = false
  #informed = 0
  #head: Omit<UpstreamAnswer, 'body'> | null = null
  /** Null while a short answer is collected. */
  #stream: Readable | null = null
  /** Bytes that came and were not handed over yet: the first piece as it came, and more of them collected. */
  #first: Buffer | null = null
  #more: ByteCollector | null = null
  /** True: the connection has been told to wait, and has handed over one more piece before it did. */
  #waits = false
  #isWhole = false
  /** True: the answer is whole, or nothing more of it is wanted. */
  #over = false

  /** `answered` gets the answer, in addition to the library's. */
  constructor(
    request: UpstreamRequest,
    agents: PacedAgents,
    maxDurationMs: number,
    answered: OnUpstreamAnswer,
  ) {
    this.#request = request
    this.#agents = agents
    this.#maxDurationMs = maxDurationMs
    this.#answered = answered
  }

  /** Sends the request, as the library has it. Resolves when the answer has been handed over. */
  readonly fetch: typeof fetch = (target, init) =>
    new Promise((passed, fail) => {
      this.#passed = passed
      this.#fail = fail
      const { headers, timeouts, hangup, proxy } = this.#request
      if (hangup.gone) return fail(hangupReason(hangup))
      hangup.onGone(() => this.#gone(hangupReason(hangup)))
      // A text by now; the library hands on the method and the body that it was given.
      const where = target as string
      const pathAt = where.indexOf('/', 'https://'.length)
      const sent = {
        origin: where.slice(0, pathAt),
        path: where.slice(pathAt),
        method: init?.method as UpstreamRequest['method'],
        body: init?.body as unknown as Buffer | null,
        headers: headers as string[],
        headersTimeout: timeouts.firstByteMs,
        bodyTimeout: timeouts.idleMs,
      }
      const { connectMs } = timeouts
      const agent = proxy
        ? this.#agents.through(proxy, connectMs)
        : (this.#agents.byLimit.get(connectMs) ?? this.#agents.open(connectMs))
      this.#send = () => openingStorage.run(this.#opening, () => agent.dispatch(sent, this))
      this.#dispatch()
    })

  #dispatch(): void {
    const { authority } = this.#request.permit
    if (this.#over) return
    if (authority.unchanged) this.#send()
    else
      confirmAuthority(authority).then(
        () => this.#dispatch(),
        (error: unknown) => this.#broke(asError(error)),
      )
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    // It may have waited for its connection. Thrown, it leaves the connection as it is.
    if (!this.#request.permit.authority.unchanged) throw OVERTAKEN
    const again = this.#controller !== null
    this.#controller = controller
    this.#mayBeStale = !this.#agents.isNew
    this.#sentAt = performance.now()
    // Nobody wants it any more; or undici means to send a request again that may have begun its work.
    if (this.#over) controller.abort(UNWANTED)
    else if (again) this.#broke(new UpstreamError('reset', 'the connection broke'))
  }

  onResponseStarted(): void {
    this.#mayBeStale = false
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
  ): void {
    if (status < 200) this.#announced(status)
    else {
      const firstByteMs = performance.now() - this.#sentAt
      this.#head = { status, headers: joinHeaders(headers), firstByteMs }
      if (status >= 300 || !isShortJson(this.#head.headers)) this.#handOver(this.#streamOf(controller))
    }
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    const isFirst = this.#first === null
    this.#keep(chunk)
    if (isFirst || !this.#stream) this.#limit(this.#maxDurationMs, 'the answer took longer than an hour')
    // Not piece by piece: pieces that came together are one chunk, and one write to the caller.
    if (this.#stream && isFirst) queueMicrotask(() => this.#flush())
    if (!controller.paused) return
    // The connection is at its end and hands over the rest; to stop it at each piece would copy the rest
    // again each time.
    if (this.#waits) controller.resume()
    this.#waits = !this.#waits
  }

  onResponseEnd(): void {
    this.#over = true
    this.#isWhole = true
    if (this.#stream) queueMicrotask(() => this.#flush())
    else this.#handOver(this.#taken())
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    if (error === OVERTAKEN) this.#dispatch()
    else if (error instanceof Refusal) this.#broke(error)
    else this.#broke(this.#controller ? failureOfRequest(error, this.#mayBeStale) : connectFailure(error))
  }

  #keep(chunk: Buffer): void {
    if (this.#first) {
      this.#more ??= new ByteCollector(Number.POSITIVE_INFINITY)
      this.#more.add(chunk)
    } else this.#first = chunk
  }

  #taken(): Buffer {
    const first = this.#first ?? NOTHING
    const bytes = this.#more ? Buffer.concat([first, this.#more.bytes()]) : first
    this.#first = null
    this.#more = null
    return bytes
  }

  #announced(status: number): void {
    this.#informed += 1
    if (status === 101) this.#broke(new UpstreamError('reset', 'switched to another protocol'))
    else if (this.#informed > MAX_INFORMATION) this.#broke(new UpstreamError('reset', 'too many 1xx answers'))
    // undici begins to count again at each.
    else this.#limit(this.#request.timeouts.firstByteMs, 'no answer in time')
  }

  #limit(ms: number, message: string): void {
    if (performance.now() - this.#sentAt > ms) this.#broke(new UpstreamError('timeout', message))
  }

  #handOver(body: Buffer | Readable): void {
    if (this.#head) this.#answered({ ...this.#head, body })
    this.#passed(ANSWER_STAND_IN)
  }

  #streamOf(controller: Dispatcher.DispatchController): Readable {
    const stream = new Readable({
      read: () => {
        if (!controller.paused) return
        this.#waits = false
        controller.resume()
      },
      destroy: (error, done) => {
        this.#abort()
        done(error)
      },
    })
    // The reader hears its error; until then it would end the process.
    stream.on('error', ignore)
    this.#stream = stream
    return stream
  }

  #flush(): void {
    const bytes = this.#taken()
    if (bytes.length > 0 && this.#stream?.push(bytes) === false) this.#controller?.pause()
    if (this.#isWhole) this.#stream?.push(null)
  }

  /** The answer will not be whole. */
  #broke(failure: Error): void {
    if (this.#over) return
    this.#abort()
    const stream = this.#stream
    if (stream) {
      this.#flush()
      // The reader of earlier bytes is told of it first.
      process.nextTick(() => stream.destroy(failure))
    } else if (this.#head) this.#handOver(brokenBody(this.#taken(), failure))
    else this.#fail(failure)
  }

  #gone(reason: Error): void {
    this.#abort()
    if (this.#stream) this.#stream.destroy()
    else this.#fail(reason)
  }

  #abort(): void {
    if (this.#over) return
    this.#over = true
    if (this.#controller) this.#controller.abort(UNWANTED)
    else this.#opening.end?.(CONNECTION_ABANDONED)
  }
}

const UNWANTED = new Error('not wanted any more')

const asError = (reason: unknown): Error => (reason instanceof Error ? reason : new Error(String(reason)))
