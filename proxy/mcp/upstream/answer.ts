import type { Readable } from 'node:stream'
import type { McpResource } from '../../../db/mcp/resources.ts'
import type { Held } from '../../../plugins/plugin.ts'
import { SMALL } from '../aside/aside.ts'
import type { Era } from '../protocol/versions.ts'
import { echoes, type UpstreamCredentials } from './connections.ts'
import { failed, McpUpstreamError } from './errors.ts'
import { eventData, type SizeLimits } from './events.ts'
import { drain, type Head, isEncoded, mediaTypeOf } from './exchange.ts'
import { readLarge } from './large-message.ts'
import { kindOfMessage, type Message, readMessage, readWhole } from './message.ts'
import { sessionIsGone } from './session-gone.ts'

/** An MCP server's answer to one request of ours. */
export interface McpAnswer {
  readonly status: number
  /** True where the upstream answers with an event stream. */
  readonly streamed: boolean
  /**
   * Notifications and requests of the upstream as they come, and last the response to our request; it ends
   * after that. Throws McpUpstreamError, or the call's reason for aborting. Nothing is read ahead beyond one
   * chunk. Returning early destroys the request. To be iterated once.
   */
  readonly messages: AsyncIterable<Message>
  /**
   * Ours on the wire. The response has it as its id; only an error with an HTTP status of 400 and up may have
   * none.
   */
  readonly requestId: number
}

/** The request that an answer must fit, and the limits that it must keep. */
export interface Expectation {
  readonly requestId: number
  readonly era: Era
  readonly credentials: UpstreamCredentials
  readonly limits: SizeLimits
  /** The account that the answer is counted on; null where no caller waits for it. */
  readonly held: Held | null
  readonly resource: Pick<McpResource, 'resource_id'>
  /** Fires when nobody waits for the answer any more. */
  readonly signal: AbortSignal
  /**
   * The session that the request was sent in, in the legacy era: none, one without an id, or one that it
   * named.
   */
  readonly session: 'none' | 'unnamed' | 'named'
  /** Called once, when nothing more can come. False: the upstream may still be at work on the request. */
  readonly settled: (answered: boolean) => void
}

interface Progress {
  /** True once the response has come. */
  answered: boolean
}

/**
 * Reads the answer that begins with `head`; a body that comes with an HTTP error is read whole.
 * Throws McpUpstreamError for what can be no answer: refused credentials, a redirect, another status, type or
 * encoding.
 */
export async function answerOf(head: Head, expectation: Expectation): Promise<McpAnswer> {
  const { status, body } = head
  const progress = { answered: status !== 200 }
  const settle = () => expectation.settled(progress.answered || body.readableEnded)
  // A body that broke together with its head has closed before anybody could listen.
  if (body.closed) settle()
  else body.once('close', settle)
  try {
    return { status, requestId: expectation.requestId, ...(await accepted(head, expectation, progress)) }
  } catch (error) {
    drain(body)
    throw error
  }
}

async function accepted(
  head: Head,
  expectation: Expectation,
  progress: Progress,
): Promise<Pick<McpAnswer, 'streamed' | 'messages'>> {
  const { status, headers, body } = head
  if (status === 401 || status === 403) {
    throw failed("the upstream refused this gateway's credentials", { status })
  }
  if (isEncoded(headers)) throw failed('the answer is compressed, which was not asked for', { status })
  const type = mediaTypeOf(headers)
  if (status >= 400) {
    return { streamed: false, messages: onlyOne(await errorAnswer(head, type, expectation)) }
  }
  if (status !== 200) throw failed(`an answer of status ${status} to a request`, { status })
  if (type === 'application/json') {
    return { streamed: false, messages: closing(oneMessage(body, expectation, progress), body, progress) }
  }
  if (type === 'text/event-stream') {
    return { streamed: true, messages: closing(eventMessages(body, expectation, progress), body, progress) }
  }
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
  const { credentials, resource, signal } = expectation
  if (bytes.length <= SMALL) return readMessage(bytes)
  return readLarge(bytes, { key: resource.resource_id, signal, traces: credentials.traces })
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

async function* oneMessage(
  body: Readable,
  expectation: Expectation,
  progress: Progress,
): AsyncGenerator<Message> {
  const { limits, held } = expectation
  const bytes = await readWhole(body, limits.maxMessageBytes, held)
  const message = judged(await messageOf(bytes, expectation), expectation)
  if (kindOfMessage(message) !== 'response') throw failed('the answer is not a response')
  progress.answered = true
  yield message
}

async function* eventMessages(
  body: Readable,
  expectation: Expectation,
  progress: Progress,
): AsyncGenerator<Message> {
  // Not destroyed with the loop: what follows the response is read, so that the connection can serve again.
  const chunks: AsyncIterable<Buffer> = body.iterator({ destroyOnReturn: false })
  try {
    for await (const data of eventData(chunks, expectation.limits, expectation.held)) {
      const message = judged(await messageOf(data, expectation), expectation)
      progress.answered = kindOfMessage(message) === 'response'
      yield message
      if (progress.answered) return
    }
    throw failed('the event stream ended before the response')
  } finally {
    if (progress.answered) drain(body)
    else body.destroy()
  }
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

async function* onlyOne(message: Message): AsyncGenerator<Message> {
  yield message
}

/** `messages`, such that returning destroys the request even where iterating has not begun. */
function closing(
  messages: AsyncGenerator<Message>,
  body: Readable,
  progress: Progress,
): AsyncIterable<Message> {
  return {
    [Symbol.asyncIterator]: () => ({
      next: () => messages.next(),
      return: () => {
        if (!progress.answered) body.destroy()
        return messages.return(undefined)
      },
    }),
  }
}

/** Reads the response that an answer ends with. Passes over what comes before it. */
export async function responseOf({ messages }: McpAnswer): Promise<Message> {
  let last: Message | null = null
  for await (const message of messages) last = message
  if (last === null) throw failed('the answer holds no response')
  return last
}
