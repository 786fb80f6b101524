import type { HangupSignal } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { MAX_INLINE_BYTES } from '../aside/aside.ts'
import {
  errorMessage,
  type JsonText,
  memberObject,
  memberText,
  requestMessage,
  responseMessage,
} from '../protocol/json-text.ts'
import type { McpAnswer } from '../upstream/answers.ts'
import type { McpUpstream, UpstreamCall } from '../upstream/client.ts'
import { mcpUpstreamFailure } from '../upstream/errors.ts'
import type { AnswerMessages } from '../upstream/events.ts'
import { messageObject, readMessage, type UpstreamMessage } from '../upstream/message.ts'
import { endlessRequestsError } from '../upstream/own-answers.ts'
import { CAPABILITY_BY_QUESTION } from './forward-server-requests.ts'
import { askedOnStream, type DispatchFacts } from './rewrite.ts'

/** The number of times that a server asks during one call, and of its questions each time. */
const MAX_ROUNDS = 16
/** The time that a question waits for its answer. ms. */
const ANSWER_MS = 600_000

interface NamedQuestion {
  readonly name: string
  readonly message: UpstreamMessage
}

type GivenAnswer = { readonly result: string } | { readonly error: string }

/**
 * A call at a server of the stateless era for a caller with a session: the server asks by its result (MCP
 * 2026-07-28, mrtr), and the caller is asked on the stream of its call, as servers of the older era do. The
 * server is called again with what the caller answers.
 */
export class AskingRounds {
  readonly #upstream: McpUpstream
  readonly #facts: DispatchFacts
  readonly #open = new Map<string, (answer: GivenAnswer) => void>()

  constructor(upstream: McpUpstream, facts: DispatchFacts) {
    this.#upstream = upstream
    this.#facts = facts
  }

  /** Returns the server as one that asks on its stream. */
  asUpstream(): McpUpstream {
    return {
      ...this.#upstream,
      call: (call) => this.#call(call),
      respond: async (_permit, _resource, _owner, response) => this.#take(response),
    }
  }

  async #call(call: UpstreamCall): Promise<McpAnswer> {
    const answer = await this.#upstream.call(call)
    if (!answer.streamed && this.#questionsOf(answer.response, 0) === null) return answer
    const { status, headers, requestId } = answer
    return { streamed: true, status, headers, requestId, messages: this.#stream(answer, call) }
  }

  #stream(first: McpAnswer, call: UpstreamCall): AnswerMessages {
    const open = { answer: first }
    const messages = this.#messages(open, call)
    return {
      next: async () => (await messages.next()).value ?? null,
      close: () => {
        if (open.answer.streamed) open.answer.messages.close()
      },
      [Symbol.asyncIterator]: () => messages,
    }
  }

  async *#messages(open: { answer: McpAnswer }, call: UpstreamCall): AsyncGenerator<UpstreamMessage, null> {
    for (let round = 0; round < MAX_ROUNDS; round += 1) {
      const response = open.answer.streamed
        ? yield* untilResponse(open.answer.messages)
        : open.answer.response
      const questions = this.#questionsOf(response, round)
      if (questions === null) {
        yield response
        return null
      }
      const answers = this.#answersTo(questions, call.hangup)
      // They may fail before they are waited for.
      answers.catch(() => {})
      for (const { message } of questions) yield message
      const given = await answers
      const error = given.map(([, answer]) => answer).find((answer) => 'error' in answer)
      if (error) {
        yield readMessage(Buffer.from(errorMessage(String(open.answer.requestId), error.error)))
        return null
      }
      const members = given.map(
        ([name, answer]) => `${JSON.stringify(name)}:${'result' in answer ? answer.result : '{}'}`,
      )
      const later = call.held?.reserveAnswerInTurn(members.reduce((sum, member) => sum + member.length, 0))
      if (later) await later
      const state = stateOf(response)
      const more = `,"inputResponses":{${members.join(',')}}${state === null ? '' : `,"requestState":${state}`}}`
      open.answer = await this.#upstream.call({ ...call, params: withMembers(call.params, more) })
    }
    throw endlessRequestsError()
  }

  /** Returns the questions of a result; null if it is large, asks nothing, or not only what the caller answers. */
  #questionsOf(response: UpstreamMessage, round: number): readonly NamedQuestion[] | null {
    const { value, bytes } = response
    if (bytes.length > MAX_INLINE_BYTES || !isAsking(value.result)) return null
    const result = messageObject(response, 'result')
    const requests = result && memberObject(result, 'inputRequests')
    const names = Object.keys(requests?.value ?? {})
    if (!requests || names.length === 0 || names.length > MAX_ROUNDS) return null
    const questions = names.map((name, index) => this.#question(requests, name, round * MAX_ROUNDS + index))
    return questions.every((question) => question !== null) ? questions : null
  }

  #question(requests: JsonText, name: string, id: number): NamedQuestion | null {
    const request = memberObject(requests, name)
    const { method } = request?.value ?? {}
    const capability = CAPABILITY_BY_QUESTION.get(method)
    if (!request || capability === undefined || typeof method !== 'string') return null
    if (!Object.hasOwn(askedOnStream(this.#facts), capability)) return null
    const text = requestMessage(id, method, memberText(request, 'params') ?? '{}')
    return { name, message: readMessage(Buffer.from(text)) }
  }

  async #answersTo(
    questions: readonly NamedQuestion[],
    hangup: HangupSignal,
  ): Promise<readonly (readonly [name: string, answer: GivenAnswer])[]> {
    const { promise: over, reject } = Promise.withResolvers<never>()
    const hungUp = (): void => reject(hangup.reason)
    const timer = setTimeout(() => reject(nobodyAnswered()), ANSWER_MS).unref()
    const ids = questions.map(({ message }) => String(message.value.id))
    const answers = questions.map(
      async ({ name }, index) =>
        [
          name,
          await new Promise<GivenAnswer>((resolve) => this.#open.set(ids[index] ?? '', resolve)),
        ] as const,
    )
    if (hangup.gone) hungUp()
    else hangup.onGone(hungUp)
    try {
      return await Promise.race([over, Promise.all(answers)])
    } finally {
      clearTimeout(timer)
      hangup.offGone(hungUp)
      for (const id of ids) this.#open.delete(id)
    }
  }

  #take(response: string): void {
    for (const [id, resolve] of this.#open) {
      for (const member of ['result', 'error'] as const) {
        const head = responseMessage(id, member, '').slice(0, -1)
        if (!response.startsWith(head)) continue
        const text = response.slice(head.length, -1)
        resolve(member === 'result' ? { result: text } : { error: text })
        return
      }
    }
    throw mcpUpstreamFailure('no question of that id is open')
  }
}

const isAsking = (result: unknown): boolean =>
  typeof result === 'object' &&
  result !== null &&
  'resultType' in result &&
  result.resultType === 'input_required'

async function* untilResponse(messages: AnswerMessages): AsyncGenerator<UpstreamMessage, UpstreamMessage> {
  for (let message = await messages.next(); message !== null; message = await messages.next()) {
    if (message.value.method === undefined) return message
    yield message
  }
  throw mcpUpstreamFailure('the answer ended without a response')
}

/** The server's own state, JSON text: it stays here. */
function stateOf(response: UpstreamMessage): string | null {
  const result = messageObject(response, 'result')
  return result && memberText(result, 'requestState')
}

const withMembers = (params: UpstreamCall['params'], more: string): string | Buffer =>
  Buffer.isBuffer(params)
    ? Buffer.concat([params.subarray(0, -1), Buffer.from(more)])
    : `${params?.slice(0, -1) ?? ''}${more}`

const nobodyAnswered = (): Refusal =>
  new Refusal('mcp_failed', {
    message: 'Nobody answered the question of the MCP server within ten minutes. Call again.',
  })
