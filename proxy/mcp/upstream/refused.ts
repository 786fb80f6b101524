import type { Expectation } from './asked.ts'
import { readWhole } from './body.ts'
import { echoes } from './credentials.ts'
import { failed } from './errors.ts'
import type { Head } from './exchange.ts'
import { kindOfMessage, type Message, readMessage } from './message.ts'
import { sessionIsGone } from './session-gone.ts'

/**
 * The answer that came with an HTTP error: a JSON-RPC response with our id, or an error that has none.
 * Throws McpUpstreamError `failed` where the body is anything else; `new_session` is its cure where it says that the
 * session is unknown.
 */
export async function refusedAnswer(
  { status, body }: Head,
  type: string,
  expectation: Expectation,
): Promise<Message> {
  const { requestId, credentials, limits, session } = expectation
  const bytes = await readWhole(body, limits.maxMessageBytes)
  const message = type === 'application/json' ? messageIn(bytes) : null
  const named = session === 'named'
  if (session !== 'none' && sessionIsGone({ status, named, requestId, bytes, message })) {
    throw failed('the upstream does not know the session', { status, cure: 'new_session' })
  }
  if (message === null || !answers(message, requestId)) throw failed(`HTTP status ${status}`, { status })
  if (echoes(credentials, bytes)) throw failed('an answer holds the secret of our credentials', { status })
  return message
}

function messageIn(bytes: Buffer): Message | null {
  try {
    return readMessage(bytes)
  } catch {
    // Whatever it is, a page or nothing: it answers no request.
    return null
  }
}

/** An error whose sender could not read the id, or would not, has none; a result always has one. */
function answers(message: Message, requestId: number): boolean {
  if (kindOfMessage(message) !== 'response') return false
  const id = message.value.id ?? null
  return id === requestId || id === null
}
