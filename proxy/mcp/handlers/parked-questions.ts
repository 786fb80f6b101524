import { createHash } from 'node:crypto'
import { isObject } from '../../../db/support/json.ts'
import type { Refusal } from '../../../plugins/refusal.ts'
import { type CallDestination, sealState, stateOwnerOf } from '../gate/checks.ts'
import { canonicalizeArguments, memberText, paramsInvalid, resultMessage } from '../protocol/json-text.ts'
import { META_KEYS } from '../protocol/versions.ts'
import type { RequestStates } from '../state/request-state.ts'
import type { McpUpstream } from '../upstream/client.ts'
import type { AnswerMessages } from '../upstream/events.ts'
import type { UpstreamMessage } from '../upstream/message.ts'
import { CAPABILITY_BY_QUESTION } from './forward-server-requests.ts'
import { CallWait, MAX_PARKED_BYTES, type ParkedCall, type ParkedCalls } from './parked-calls.ts'
import { type DispatchFacts, upstreamSessionOwner } from './rewrite.ts'

export interface ParkingDependencies {
  readonly upstream: Pick<McpUpstream, 'respond'>
  readonly states: RequestStates
  readonly parkedCalls: ParkedCalls
}

const QUESTION = 'question'

/** The questions of a server of the older era to a caller of the stateless one (MCP 2026-07-28, mrtr). */
export class ParkedQuestions {
  readonly #sources: ParkingDependencies
  readonly #facts: DispatchFacts
  readonly #to: CallDestination
  readonly wait: CallWait

  constructor(sources: ParkingDependencies, facts: DispatchFacts, to: CallDestination) {
    this.#sources = sources
    this.#facts = facts
    this.#to = to
    this.wait = this.#parked()?.waiting ?? new CallWait(facts.hangup, facts.held)
  }

  /** Returns the questions of a call whose caller can be asked something, or answers; else null. */
  static ofCall(
    sources: ParkingDependencies,
    facts: DispatchFacts,
    to: CallDestination,
  ): ParkedQuestions | null {
    const declared = facts.message.meta[META_KEYS.capabilities]
    const names = [...CAPABILITY_BY_QUESTION.values()]
    const mayArise =
      facts.requestState !== null ||
      (isObject(declared) && names.some((name) => Object.hasOwn(declared, name)))
    return mayArise ? new ParkedQuestions(sources, facts, to) : null
  }

  /** Tells whether the caller answers such a question, and the call is small enough to be kept. */
  canBeAsked(asked: UpstreamMessage): boolean {
    const { method, id } = asked.value
    const capability = CAPABILITY_BY_QUESTION.get(method)
    const declared = this.#facts.message.meta[META_KEYS.capabilities]
    return (
      id !== undefined &&
      capability !== undefined &&
      isObject(declared) &&
      Object.hasOwn(declared, capability) &&
      this.#bytesWith(asked) <= MAX_PARKED_BYTES
    )
  }

  /** The bytes that the call holds while it waits: the server's stream keeps its first request. */
  #bytesWith({ bytes }: UpstreamMessage): number {
    return this.#facts.body.length + bytes.length
  }

  /** Has the stream wait, and returns the result that asks the caller. JSON text. */
  park(message: UpstreamMessage, messages: AnswerMessages): string {
    const { granted, requestState, body } = this.#facts
    const { method } = message.value
    // Some clients read none as broken text.
    const params = isObject(message.value.params) ? memberText(message, 'params') : '{}'
    this.wait.leave()
    const call: ParkedCall = {
      principalId: granted.principal.id,
      authority: granted.authority,
      subject: this.#subject(),
      messages,
      owner: upstreamSessionOwner(this.#facts),
      upstreamId: memberText(message, 'id') ?? 'null',
      bytes: this.#bytesWith(message) + (requestState === null ? 0 : body.length),
      question: `{"method":${JSON.stringify(method)},"params":${params}}`,
      waiting: this.wait,
    }
    return this.#asking(this.#sources.parkedCalls.park(call), call)
  }

  /**
   * Hands the caller's answer to the server, and returns the rest of its stream, or the result that asks
   * again. Refuses with `mcp_params_invalid` if no such call waits.
   */
  async resume(): Promise<AnswerMessages | string> {
    const { requestState: id, message, granted, hangup, held } = this.#facts
    const call = this.#parked()
    if (id === null || !call) throw notWaiting()
    const { inputResponses: answers } = message.params
    const answer = isObject(answers) ? answers[QUESTION] : undefined
    if (!isObject(answer)) return this.#asking(id, call)
    if (!this.#sources.parkedCalls.take(id)) throw notWaiting()
    try {
      const text = resultMessage(call.upstreamId, JSON.stringify(answer))
      call.waiting.follow(hangup, held)
      await this.#sources.upstream.respond(granted, this.#to.resource, call.owner, text)
    } catch (error) {
      call.messages.close()
      throw error
    }
    return call.messages
  }

  #parked(): ParkedCall | null {
    const { requestState: id, granted } = this.#facts
    if (id === null) return null
    const principalId = granted.principal.id
    return this.#sources.parkedCalls.find(id, { principalId, subject: this.#subject() })
  }

  #asking(id: string, { question }: ParkedCall): string {
    const { granted, message, approval } = this.#facts
    const owner = stateOwnerOf(granted.principal, message, this.#to)
    const state = sealState(this.#sources.states, id, owner, approval)
    const asked = `"inputRequests":{"${QUESTION}":${question}}`
    return `{"resultType":"input_required",${asked},"requestState":${JSON.stringify(state)}}`
  }

  /** The part of the request that was judged, and that the server works on: no other may answer for it. */
  #subject(): string {
    const { toolCall, message } = this.#facts
    const { uri, arguments: given } = message.params
    const own = toolCall.method === 'tools/call' ? toolCall.argumentsSha256?.() : undefined
    if (own !== undefined) return own
    const text = canonicalizeArguments({ arguments: given ?? null, uri: uri ?? null })
    return createHash('sha256').update(text).digest('hex')
  }
}

const notWaiting = (): Refusal =>
  paramsInvalid(
    'The call that asked is over, was another one, or waits at another gateway. Call again without requestState.',
  )
