import type { JsonObject } from '../../../db/support/json.ts'
import {
  errorMessage,
  METHOD_NOT_FOUND,
  memberText,
  responseMessage,
  resultMessage,
} from '../protocol/json-text.ts'
import type { McpAnswer } from './answers.ts'
import { McpUpstreamError, mcpUpstreamFailure } from './errors.ts'
import { kindOfMessage, type UpstreamMessage } from './message.ts'

/** The requests that an upstream may make during one answer, pings included: each costs one of ours. */
const MAX_REQUESTS = 1_024

/** Counts the requests of an upstream during one answer. Throws McpUpstreamError if there is no end of them. */
export class RequestCount {
  #requests = 0

  add(): void {
    this.#requests += 1
    if (this.#requests > MAX_REQUESTS) throw endlessRequestsError()
  }
}

export const endlessRequestsError = () => mcpUpstreamFailure('it asks without end')

/** The answers of a client that can be asked, but whose user does not want to be. By capability. */
const DECLINED: ReadonlyMap<
  unknown,
  readonly [capability: string, member: 'result' | 'error', text: string]
> = new Map([
  ['elicitation/create', ['elicitation', 'result', '{"action":"decline"}']],
  [
    'sampling/createMessage',
    ['sampling', 'error', '{"code":-1,"message":"The caller rejected the sampling request."}'],
  ],
])
const NOT_ASKED = `{"code":${METHOD_NOT_FOUND},"message":"The caller cannot be asked."}`

/** Answers a request that nobody is asked, as such a client does. JSON text of a whole message. */
export function ownAnswer(request: UpstreamMessage, declared: JsonObject): string {
  const id = memberText(request, 'id') ?? 'null'
  const { method } = request.value
  if (method === 'ping') return resultMessage(id, '{}')
  // No server of the older era is told that there are any, and some ask all the same.
  if (method === 'roots/list') return resultMessage(id, '{"roots":[]}')
  const [capability = '', member = 'error', text] = DECLINED.get(method) ?? []
  if (text === undefined || !Object.hasOwn(declared, capability)) return errorMessage(id, NOT_ASKED)
  return responseMessage(id, member, text)
}

/**
 * Waits until an answer of ours is taken. One that is not wanted costs nothing: the server goes on, or says
 * nothing more. Rejects if the server is not reached.
 */
export async function offerOwnAnswer(sent: Promise<void>): Promise<void> {
  try {
    await sent
  } catch (error) {
    if (!(error instanceof McpUpstreamError) || error.kind !== 'failed') throw error
  }
}

/**
 * Reads the response that an answer ends with. Passes over notifications, and hands requests to `answer`.
 */
export async function readFinalResponse(
  answer: McpAnswer,
  onRequest: (request: UpstreamMessage) => Promise<void>,
): Promise<UpstreamMessage> {
  if (!answer.streamed) return answer.response
  const requests = new RequestCount()
  for await (const message of answer.messages) {
    const kind = kindOfMessage(message)
    if (kind === 'response') return message
    if (kind === 'notification') continue
    requests.add()
    await onRequest(message)
  }
  throw mcpUpstreamFailure('the answer holds no response')
}
