import type { UpstreamAnswer } from './answer.ts'
import type { UpstreamCall } from './call.ts'
import { McpUpstreamError } from './errors.ts'
import type { Message } from './message.ts'
import { notificationText } from './protocol.ts'
import { notify, send, type Transport } from './request.ts'
import { type Session, sessionHeaders } from './session.ts'
import { mayBeGone } from './session-gone.ts'
import type { Lease, UpstreamSessions } from './sessions.ts'

/** Nobody waits for a cancellation longer. ms. */
const CANCEL_MS = 2_000

/**
 * Sends a request in the owner's session at an upstream of the legacy era, opening it where there is none. Where the
 * upstream does not know the session any more it has done nothing yet: the request is sent once more, in a new one.
 */
export async function callLegacy(
  transport: Transport,
  sessions: UpstreamSessions,
  call: UpstreamCall,
): Promise<UpstreamAnswer> {
  try {
    return await inSession(transport, sessions, call)
  } catch (error) {
    if (!(error instanceof McpUpstreamError && error.cure === 'new_session')) throw error
    return inSession(transport, sessions, call)
  }
}

async function inSession(
  transport: Transport,
  sessions: UpstreamSessions,
  call: UpstreamCall,
): Promise<UpstreamAnswer> {
  const { resource, owner, client, method, params, signal } = call
  const lease = await sessions.lease(resource, owner, client, signal)
  const { session } = lease
  const requestId = transport.nextId()
  const settled = (answered: boolean) => {
    lease.release()
    if (!answered) void cancel(transport, call, session, requestId)
  }
  try {
    const { answer } = await send(transport, {
      resource,
      requestId,
      era: 'legacy',
      session: session.id === null ? 'unnamed' : 'named',
      method,
      params,
      headers: sessionHeaders(session),
      signal,
      settled,
    })
    return answer.status < 400 ? answer : { ...answer, messages: watched(answer, lease) }
  } catch (error) {
    if (error instanceof McpUpstreamError && error.cure === 'new_session') lease.forget()
    throw error
  }
}

/** The messages of an answer with an HTTP error, which may speak of the session. */
async function* watched({ status, messages }: UpstreamAnswer, lease: Lease): AsyncGenerator<Message> {
  for await (const message of messages) {
    if (mayBeGone(status, message)) lease.forget()
    yield message
  }
}

/** Hanging up cancels nothing in this era (2025-11-25, transports); this does. Best effort: nobody waits for it. */
async function cancel(
  transport: Transport,
  { resource }: UpstreamCall,
  session: Session,
  requestId: number,
): Promise<void> {
  const params = JSON.stringify({ requestId, reason: 'The caller does not wait any longer.' })
  const text = notificationText('notifications/cancelled', params)
  const signal = AbortSignal.timeout(CANCEL_MS)
  try {
    await notify(transport, { resource, text, headers: sessionHeaders(session), signal })
  } catch {
    // The upstream finishes what nobody will read.
  }
}
