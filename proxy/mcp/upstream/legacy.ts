import { notificationMessage } from '../protocol/json-text.ts'
import type { McpAnswer } from './answer.ts'
import { McpUpstreamError } from './errors.ts'
import type { Message } from './message.ts'
import type { ModernCall } from './modern.ts'
import { notify, send, type Transport } from './request.ts'
import { type ClientIdentity, sessionHeaders, type UpstreamSession } from './session.ts'
import { mayBeGone } from './session-gone.ts'
import type { Lease, SessionOwner, UpstreamSessions } from './sessions.ts'

/** Nobody waits for a cancellation longer. ms. */
const CANCEL_MS = 2_000

/** Also an upstream of this era is told when the caller hangs up. */
export interface LegacyCall extends Omit<ModernCall, 'headers'> {
  /** The owner of the session: no two owners share one. */
  readonly owner: SessionOwner
  /** The client that the session is opened for, where this call opens it. */
  readonly client: ClientIdentity
}

/**
 * Sends a request in the owner's session at an upstream of the legacy era, opening it where there is none.
 * Where the upstream does not know the session any more it has done nothing yet: the request is sent once
 * more, in a new one.
 */
export async function callLegacy(
  transport: Transport,
  sessions: UpstreamSessions,
  call: LegacyCall,
): Promise<McpAnswer> {
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
  call: LegacyCall,
): Promise<McpAnswer> {
  const { permit, resource, method, params, signal } = call
  const lease = await sessions.lease(call)
  const { session } = lease
  const requestId = transport.nextId()
  const settled = (answered: boolean) => {
    lease.release()
    if (!answered) void cancel(transport, call, session, requestId)
  }
  try {
    const { answer } = await send(transport, {
      permit,
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

/** Passes on the messages of an answer with an HTTP error, which may speak of the session. */
async function* watched({ status, messages }: McpAnswer, lease: Lease): AsyncGenerator<Message> {
  for await (const message of messages) {
    if (mayBeGone(status, message)) lease.forget()
    yield message
  }
}

/**
 * Cancels a request, which hanging up does not in this era (2025-11-25, transports). Best effort: nobody
 * waits for it.
 */
async function cancel(
  transport: Transport,
  { permit, resource }: LegacyCall,
  session: UpstreamSession,
  requestId: number,
): Promise<void> {
  const params = JSON.stringify({ requestId, reason: 'The caller does not wait any longer.' })
  const text = notificationMessage('notifications/cancelled', params)
  const signal = AbortSignal.timeout(CANCEL_MS)
  try {
    await notify(transport, { permit, resource, text, headers: sessionHeaders(session), signal })
  } catch {
    // The upstream finishes an answer that nobody will read.
  }
}
