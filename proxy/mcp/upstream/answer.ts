import type { McpResource } from '../../../db/mcp/resources.ts'
import type { Hangup, Held } from '../../../plugins/plugin.ts'
import { SMALL } from '../aside/aside.ts'
import type { Era } from '../protocol/versions.ts'
import { echoes, type UpstreamCredentials } from './connections.ts'
import { failed, McpUpstreamError } from './errors.ts'
import { EventReader, type SizeLimits } from './events.ts'
import { drain, type Head, isEncoded, mediaTypeOf, type ResponseHeaders } from './exchange.ts'
import { readLarge } from './large-message.ts'
import { kindOfMessage, type Message, readMessage, readWhole } from './message.ts'
import { MessageStream } from './message-stream.ts'
import { sessionIsGone } from './session-gone.ts'

interface Answered {
  readonly status: number
  readonly headers: ResponseHeaders
  /**
   * Ours on the wire. The response has it as its id; only an error with an HTTP status of 400 and up may have
   * none.
   */
  readonly requestId: number
}

interface Whole extends Answered {
  readonly streamed: false
  readonly response: Message
}

export interface Streamed extends Answered {
  readonly streamed: true
  readonly messages: MessageStream
}

/** An MCP server's answer to one request of ours: the response alone, or an event stream that ends with it. */
export type McpAnswer = Whole | Streamed

/** The request that an answer must fit, and the limits that it must keep. */
export interface Expectation {
  readonly requestId: number
  readonly era: Era
  readonly credentials: UpstreamCredentials
  readonly limits: SizeLimits
  /** The account that the answer is counted on; null where no caller waits for it. */
  readonly held: Held | null
  readonly resource: Pick<McpResource, 'resource_id'>
  /** Tells when nobody waits for the answer any more. */
  readonly hangup: Hangup
  /**
   * The session that the request was sent in, in the legacy era: none, one without an id, or one that it
   * named.
   */
  readonly session: 'none' | 'unnamed' | 'named'
  /** Called once, when nothing more can come. False: the upstream may still be at work on the request. */
  readonly settled: (answered: boolean) => void
}

/**
 * Reads the answer that begins with `head`: whole, unless it is an event stream. Throws McpUpstreamError for what
 * can be no answer: refused credentials, a redirect, another status, type or encoding, a body that is no response.
 */
export async function answerOf(head: Head, expectation: Expectation): Promise<McpAnswer> {
  const { status, headers, body } = head
  const { requestId, limits, held, settled } = expectation
  let messages: MessageStream | null = null
  body.onceOver(() => settled(status !== 200 || body.complete || messages?.answered === true))
  try {
    const type = typeOf(head)
    if (status === 200 && type === 'text/event-stream') {
      const read = (data: Buffer) => judgedIn(data, expectation)
      messages = new MessageStream(body, new EventReader(limits, held), read)
      return { status, headers, requestId, streamed: true, messages }
    }
    const response =
      status >= 400 ? await errorAnswer(head, type, expectation) : await soleMessage(head, expectation)
    return { status, headers, requestId, streamed: false, response }
  } catch (error) {
    drain(body)
    throw error
  }
}

/** Returns the type of an answer that may be one. */
function typeOf({ status, headers }: Head): string {
  if (status === 401 || status === 403) {
    throw failed("the upstream refused this gateway's credentials", { status })
  }
  if (isEncoded(headers)) throw failed('the answer is compressed, which was not asked for', { status })
  const type = mediaTypeOf(headers)
  if (status >= 400) return type
  if (status !== 200) throw failed(`an answer of status ${status} to a request`, { status })
  if (type === 'application/json' || type === 'text/event-stream') return type
  throw failed('the answer is neither JSON nor an event stream', { status })
}

/**
 * Reads the answer that came with an HTTP error: a JSON-RPC response with our id, or an error that has none.
 * Throws McpUpstreamError `failed` where the body is anything else; `new_session` is its cure where it says
 * that the session is unknown.
 */
async function errorAnswer({ status, body }: Head, type: string, expectation: Expectation): Promise<Message> {
  const { requestId, limits, session, held } = expectation
  const bytes = await readWhole(body, limits.maxMessageBytes, held)
  const message = type === 'application/json' ? await messageIn(bytes, expectation) : null
  const named = session === 'named'
  if (session !== 'none' && sessionIsGone({ status, named, requestId, bytes, message })) {
    throw failed('the upstream does not know the session', { status, cure: 'new_session' })
  }
  if (message === null || !answers(message, requestId)) throw failed(`HTTP status ${status}`, { status })
  if (holdsSecret(message, expectation)) {
    throw failed('an answer holds the secret of our credentials', { status })
  }
  return message
}

/** Reads a message. A large one that holds the secret of our credentials is none. */
function messageOf(bytes: Buffer, expectation: Expectation): Message | Promise<Message> {
  const { credentials, resource, hangup } = expectation
  if (bytes.length <= SMALL) return readMessage(bytes)
  return readLarge(bytes, { key: resource.resource_id, signal: hangup.signal, traces: credentials.traces })
}

/** Tells of a small message whether it holds the secret of our credentials. */
const holdsSecret = ({ bytes, objects }: Message, { credentials }: Expectation): boolean =>
  objects === null && echoes(credentials, bytes)

async function messageIn(bytes: Buffer, expectation: Expectation): Promise<Message | null> {
  try {
    return await messageOf(bytes, expectation)
  } catch (error) {
    if (!(error instanceof McpUpstreamError)) throw error
    // A page or nothing: it answers no request.
    return null
  }
}

/**
 * Tells whether a message answers the request. An error whose sender could not read the id has none; a result
 * has one.
 */
function answers(message: Message, requestId: number): boolean {
  if (kindOfMessage(message) !== 'response') return false
  const id = message.value.id ?? null
  return id === requestId || id === null
}

async function soleMessage({ body }: Head, expectation: Expectation): Promise<Message> {
  const { limits, held } = expectation
  const bytes = await readWhole(body, limits.maxMessageBytes, held)
  const message = await judgedIn(bytes, expectation)
  if (kindOfMessage(message) !== 'response') throw failed('the answer is not a response')
  return message
}

/** Reads a message that may be passed on. */
function judgedIn(bytes: Buffer, expectation: Expectation): Message | Promise<Message> {
  const message = messageOf(bytes, expectation)
  return message instanceof Promise
    ? message.then((read) => judged(read, expectation))
    : judged(message, expectation)
}

/** Returns a message that may be passed on. */
function judged(message: Message, expectation: Expectation): Message {
  const { era, requestId } = expectation
  if (holdsSecret(message, expectation)) throw failed('a message holds the secret of our credentials')
  const kind = kindOfMessage(message)
  if (kind === 'response' && message.value.id !== requestId) throw failed('a response to another request')
  // 2026-07-28, streamable HTTP: what a server wants to know it asks for in a result.
  if (kind === 'request' && era === 'modern') throw failed('a request where there can be none')
  return message
}

/** Reads the response that an answer ends with. Passes over what comes before it. */
export async function responseOf(answer: McpAnswer): Promise<Message> {
  if (!answer.streamed) return answer.response
  let last: Message | null = null
  for await (const message of answer.messages) last = message
  if (last === null) throw failed('the answer holds no response')
  return last
}
