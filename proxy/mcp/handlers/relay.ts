import { Readable } from 'node:stream'
import type { McpResource } from '../../../db/mcp/resources.ts'
import type { HangupSignal } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { CallReport, Reply } from '../../http/reply.ts'
import { MAX_INLINE_BYTES } from '../aside/aside.ts'
import { type CallDestination, sealState, stateOwnerOf } from '../gate/checks.ts'
import {
  errorMessage,
  eventOf,
  eventParts,
  type JsonText,
  type MemberEdits,
  responseAround,
  resultMessage,
} from '../protocol/json-text.ts'
import { LIST_MEMBER_BY_METHOD } from '../protocol/known-members.ts'
import type { ProtocolEra } from '../protocol/versions.ts'
import { rpcError } from '../refusal.ts'
import type { RequestCancellations } from '../state/cancellations.ts'
import type { RequestStates } from '../state/request-state.ts'
import type { ServerRequests } from '../state/server-requests.ts'
import type { McpAnswer, McpStreamedAnswer } from '../upstream/answers.ts'
import type { McpUpstream } from '../upstream/client.ts'
import { McpUpstreamError } from '../upstream/errors.ts'
import type { AnswerMessages } from '../upstream/events.ts'
import { knownList } from '../upstream/large-message.ts'
import { messageObject, responseResult, type UpstreamMessage } from '../upstream/message.ts'
import { ServerRequestForwarder } from './forward-server-requests.ts'
import { digestInTurns, eventPieces } from './large-answer.ts'
import type { ParkedCalls } from './parked-calls.ts'
import { ParkedQuestions } from './parked-questions.ts'
import {
  buildUpstreamCall,
  type DispatchFacts,
  inEitherEra,
  rewriteError,
  rewriteMessage,
  rewriteResult,
  upstreamEra,
} from './rewrite.ts'
import { refusalOfUpstream, retryDetail } from './upstream-refusal.ts'

export interface RelayDependencies {
  readonly upstream: McpUpstream
  readonly serverRequests: ServerRequests
  readonly cancellations: RequestCancellations
  readonly states: RequestStates
  readonly parkedCalls: ParkedCalls
  readonly announce: (resourceId: string) => void
}

/** Relays a granted call, as JSON or as events. Refuses with `mcp_unreachable` and `mcp_failed`. */
export const relayCall = (
  sources: RelayDependencies,
  facts: DispatchFacts,
  destination: CallDestination,
): Promise<Reply> => new RelayedCall(sources, facts, destination).reply()

interface RenderedResponse {
  readonly body: Buffer
  /** True: it is an error. */
  readonly failed: boolean
}

/** The head of a stream that goes on for another request. */
const CONTINUED = { streamed: true, status: 200, headers: {}, requestId: 0 } as const

const END = Buffer.from('\n\n')

const JSON_TYPE = { 'content-type': 'application/json' } as const

class RelayedCall {
  readonly #sources: RelayDependencies
  readonly #facts: DispatchFacts
  #to: CallDestination
  /** Null until the upstream asks something. */
  #forwarder: ServerRequestForwarder | null = null
  /** Null if the caller is not asked by results. */
  #questions: ParkedQuestions | null = null
  /** True: the upstream's stream waits for another request of the caller. */
  #parked = false
  #waiting: Readonly<Record<string, string>> = {}
  /** The bytes of a stream up to the end of its response; null until that is made. */
  #responseEnd: number | null = null
  #broken: Pick<CallReport, 'reason' | 'cause' | 'unknown'> = {}
  readonly #report: { provider: string; failed: boolean; detail: Record<string, string | number | boolean> }

  constructor(sources: RelayDependencies, facts: DispatchFacts, to: CallDestination) {
    this.#sources = sources
    this.#facts = facts
    this.#to = to
    this.#report = { provider: to.resource.name, failed: false, detail: {} }
    this.#goTo(to.resource)
  }

  #goTo(resource: McpResource): void {
    this.#to = { ...this.#to, resource }
    this.#report.detail.upstream_era = this.#era
    const between = this.#facts.message.era === 'modern' && this.#era === 'legacy'
    this.#questions = between ? ParkedQuestions.ofCall(this.#sources, this.#facts, this.#to) : null
  }

  get #serverRequests(): ServerRequestForwarder {
    this.#forwarder ??= new ServerRequestForwarder(this.#sources, this.#facts, this.#to)
    return this.#forwarder
  }

  get #era(): ProtocolEra {
    return upstreamEra(this.#to.resource, this.#facts.session)
  }

  async reply(): Promise<Reply> {
    const { cancellations } = this.#sources
    const { granted, session, message } = this.#facts
    const caller = { principalId: granted.principal.id, session, message }
    const { hangup, end } = cancellations.begin({ ...caller, hangup: this.#facts.hangup })
    let streaming = false
    try {
      const answer = await this.#answer(hangup)
      if (typeof answer === 'string') return this.#replyOf(this.#asking(answer), 200)
      this.#report.detail.upstream_status = answer.status
      if (!answer.streamed) this.#waiting = answer.waiting
      if (!answer.streamed) return await this.#last(answer.response, answer.status)
      if (!message.takesEvents) return await this.#whole(answer)
      streaming = true
      return this.#streamed(answer, end)
    } catch (error) {
      if (!hangup.gone) throw this.#refusalOf(error)
      if (hangup.reason instanceof Refusal) throw hangup.reason
      throw new Refusal('client_gone', { detail: { resource: this.#to.resource.name } })
    } finally {
      if (!streaming) this.#over(end)
    }
  }

  /** Asks the upstream, or goes on with a call that waits there; text: the result that asks the caller again. */
  async #answer(hangup: HangupSignal): Promise<McpAnswer | string> {
    const questions = this.#questions
    if (questions && this.#facts.requestState !== null) {
      const messages = await questions.resume()
      return typeof messages === 'string' ? messages : { ...CONTINUED, messages }
    }
    const { resource: read } = this.#to
    return inEitherEra(read, this.#facts.session, (resource) => {
      if (resource !== read) {
        this.#goTo(resource)
        this.#sources.announce(resource.resource_id)
      }
      return this.#ask(hangup)
    })
  }

  #ask(hangup: HangupSignal): Promise<McpAnswer> {
    const questions = this.#questions
    const call = buildUpstreamCall(this.#facts, this.#to, questions?.wait.hangup ?? hangup)
    return this.#sources.upstream.call(questions ? { ...call, held: questions.wait.held } : call)
  }

  /** The tool under its whole name; null if none is called. */
  get #tool(): string | null {
    const { pinned, resource } = this.#to
    return pinned && `${resource.name}.${pinned.tool.name}`
  }

  #refusalOf(error: unknown): unknown {
    return refusalOfUpstream(error, this.#to.resource, this.#tool)
  }

  async #whole({ messages, status }: McpStreamedAnswer): Promise<Reply> {
    try {
      for (let message = await messages.next(); message !== null; message = await messages.next()) {
        if (isResponse(message)) return await this.#last(message, status)
        // Nobody can be told anything before the answer, and only a caller of the stateless era be asked.
        if (message.value.id === undefined) this.#noted(message)
        else if (this.#questions?.canBeAsked(message))
          return this.#replyOf(this.#park(message, messages), 200)
        else await this.#serverRequests.decline(message)
      }
      throw new McpUpstreamError('failed', 'the answer ended without a response')
    } finally {
      this.#close(messages)
    }
  }

  #park(message: UpstreamMessage, messages: AnswerMessages): RenderedResponse {
    if (!this.#questions) throw new Error('the caller is not asked by results')
    this.#parked = true
    return this.#asking(this.#questions.park(message, messages))
  }

  #asking(result: string): RenderedResponse {
    const { message, commitments } = this.#facts
    const { detail } = this.#report
    detail.input_required = true
    detail.result_bytes = Buffer.byteLength(result)
    detail.result_sha256 = commitments.of('result_sha256', result)
    return { body: Buffer.from(resultMessage(message.id ?? 'null', result)), failed: false }
  }

  #close(messages: AnswerMessages): void {
    if (!this.#parked) messages.close()
  }

  #last(message: UpstreamMessage, status: number): Reply | Promise<Reply> {
    const written = this.#response(message)
    return written instanceof Promise
      ? written.then((body) => this.#replyOf(body, status))
      : this.#replyOf(written, status)
  }

  #replyOf({ body, failed }: RenderedResponse, status: number): Reply {
    return {
      status: failed && this.#era === 'modern' ? this.#statusOf(status) : 200,
      headers: failed ? { ...JSON_TYPE, ...this.#waiting } : JSON_TYPE,
      body,
      report: () => this.#reported(),
    }
  }

  /**
   * Passes on the status of an error: a modern upstream says its kind by it, and a modern caller reads it.
   */
  #statusOf(status: number): number {
    return this.#facts.message.era === 'modern' && status >= 400 && status < 500 ? status : 200
  }

  #streamed(answer: McpStreamedAnswer, end: () => void): Reply {
    const source = Readable.from(this.#events(answer), { objectMode: false })
    let written = 0
    let tail = Buffer.alloc(0)
    // Also if nobody came to read it.
    source.once('close', () => {
      this.#close(answer.messages)
      this.#over(end)
    })
    return {
      status: 200,
      headers: { 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' },
      body: {
        source,
        observe: (chunk) => {
          written += chunk.length
          tail = Buffer.concat([tail, chunk.subarray(-END.length)]).subarray(-END.length)
        },
        isWhole: (ended) => ended || written === this.#responseEnd,
        // An event that was cut in half is closed first, or this one would be read as its rest.
        brokenOff: () =>
          (written === 0 || tail.equals(END) ? '' : '\n\n') +
          eventOf(errorMessage(this.#facts.message.id, rpcError(new Refusal('mcp_failed'), this.#facts.id))),
      },
      report: () => this.#reported(),
    }
  }

  /** Messages come and are written together. */
  async *#events({ messages }: McpStreamedAnswer): AsyncGenerator<Buffer> {
    const written: Buffer[] = []
    let given = 0
    const taken = (): Buffer => {
      const bytes = Buffer.concat(written.splice(0))
      given += bytes.length
      return bytes
    }
    const respondedWith = (): void => {
      this.#responseEnd = written.reduce((sum, { length }) => sum + length, given)
    }
    try {
      for (;;) {
        const next = messages.next()
        if (next instanceof Promise && written.length > 0) {
          // It may fail before it is waited for.
          next.catch(() => {})
          yield taken()
        }
        const message = await next
        if (message === null) break
        if (this.#questions?.canBeAsked(message)) {
          written.push(...eventParts(this.#park(message, messages).body))
          respondedWith()
          break
        }
        const bytes = await this.#passedOn(message)
        if (bytes && bytes.length <= MAX_INLINE_BYTES) written.push(...eventParts(bytes))
        else if (bytes) {
          if (written.length > 0) yield taken()
          for await (const piece of eventPieces(bytes)) {
            given += piece.length
            yield piece
          }
          written.push(END)
        }
        if (isResponse(message)) respondedWith()
      }
    } catch (error) {
      // The caller has been waiting for a response, and this is one: a clean end, but not of a clean call.
      const refusal = this.#refusalOf(error)
      if (!(refusal instanceof Refusal)) throw refusal
      this.#report.failed = true
      const unknown = refusal.detail.outcome === 'unknown'
      this.#broken = { reason: refusal.reason, cause: refusal.cause, ...(unknown && { unknown }) }
      written.push(
        Buffer.from(eventOf(errorMessage(this.#facts.message.id, rpcError(refusal, this.#facts.id)))),
      )
      respondedWith()
    } finally {
      this.#close(messages)
    }
    if (written.length > 0) yield taken()
  }

  async #passedOn(message: UpstreamMessage): Promise<Buffer | null> {
    if (isResponse(message)) return (await this.#response(message)).body
    if (message.value.id === undefined) return this.#noted(message)
    return this.#serverRequests.forward(message)
  }

  /** Returns a notification as it is; null if it is for this gateway. */
  #noted(message: UpstreamMessage): Buffer | null {
    const { method } = message.value
    // The server names its question by its own id, which the caller has never seen.
    if (method === 'notifications/cancelled') return this.#forwarder?.cancelled(message) ?? null
    if (method !== 'notifications/tools/list_changed') return rewriteMessage(message)
    // The list here changes when an operator approves the change, not before.
    this.#sources.announce(this.#to.resource.resource_id)
    return null
  }

  /** Returns the response to the caller, and notes its facts. Waits only for a large one or a list. */
  #response(response: UpstreamMessage): RenderedResponse | Promise<RenderedResponse> {
    const member = LIST_MEMBER_BY_METHOD.get(this.#facts.message.method)
    if (member === undefined || response.value.result === undefined) return this.#written(response, {})
    const asker = { key: this.#to.resource.resource_id, signal: this.#facts.hangup.signal }
    return knownList(response, member, asker).then((list) =>
      this.#written(response, { ...(list !== null && { [member]: list }), ...cursorEdit(response) }),
    )
  }

  /** `edits`: of the result. */
  #written(response: UpstreamMessage, edits: MemberEdits): RenderedResponse | Promise<RenderedResponse> {
    const { granted, message, commitments } = this.#facts
    const { id } = message
    if (id === null) throw new Error('a notification was dispatched as a request')
    const result = messageObject(response, 'result')
    if (result === null) {
      const error = messageObject(response, 'error')
      if (error === null) throw new McpUpstreamError('failed', 'a response is neither a result nor an error')
      this.#report.failed = true
      // One that no row can hold must not cost the row all the rest (docs/ledger.md#leaf: integers only).
      if (Number.isSafeInteger(error.value.code)) this.#report.detail.error_code = Number(error.value.code)
      return { body: responseAround(response, this.#errorBytes(error), id, 'error'), failed: true }
    }
    const shaped = rewriteResult(result, {
      method: message.method,
      caller: message.era,
      upstream: this.#era,
      edits,
      seal: (state) =>
        sealState(
          this.#sources.states,
          state,
          stateOwnerOf(granted.principal, message, this.#to),
          this.#facts.approval,
        ),
    })
    this.#note(result.value)
    const committed = (sha256: string): RenderedResponse => {
      this.#report.detail.result_bytes = shaped.length
      this.#report.detail.result_sha256 = sha256
      return { body: responseAround(response, shaped, id, 'result'), failed: false }
    }
    return shaped.length > MAX_INLINE_BYTES
      ? digestInTurns(commitments.hashing('result_sha256'), shaped).then(committed)
      : committed(commitments.of('result_sha256', shaped))
  }

  #errorBytes(error: JsonText): Buffer {
    const { upstream_status: status } = this.#report.detail
    try {
      return rewriteError(error)
    } catch (thrown) {
      if (!(thrown instanceof Refusal) || typeof status !== 'number' || status < 400) throw thrown
      throw new Refusal(status === 429 ? 'mcp_rate_limited' : thrown.reason, {
        detail: { ...thrown.detail, upstream_status: status, ...retryDetail(this.#waiting) },
        headers: this.#waiting,
      })
    }
  }

  #note(result: Readonly<Record<string, unknown>>): void {
    const { detail } = this.#report
    if (result.resultType === 'input_required') detail.input_required = true
    if (this.#facts.message.method !== 'tools/call') return
    detail.isError = result.isError === true
    this.#report.failed = result.isError === true
  }

  #reported(): CallReport {
    if (this.#facts.account?.refreshed) this.#report.detail.account_refreshed = true
    return { ...this.#report, ...(this.#tool !== null && { tool: this.#tool }), ...this.#broken }
  }

  #over(end: () => void): void {
    end()
    this.#forwarder?.close()
  }
}

/** A cursor that leads nowhere is left out: a client's library would refuse the whole list because of it. */
function cursorEdit(response: UpstreamMessage): MemberEdits {
  const { nextCursor: cursor = '' } = responseResult(response) ?? {}
  return typeof cursor === 'string' ? {} : { nextCursor: null }
}

const isResponse = ({ value }: UpstreamMessage): boolean => value.method === undefined
