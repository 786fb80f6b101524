import type { JsonObject, Members } from '../../../db/json.ts'
import type { McpResource } from '../../../db/mcp/resources.ts'
import { notificationMessage } from '../protocol/json-text.ts'
import { IMPLEMENTATION, LEGACY } from '../protocol/versions.ts'
import { responseOf } from './answer.ts'
import { drain } from './body.ts'
import { failed } from './errors.ts'
import { exchange, type ResponseHeaders } from './exchange.ts'
import { errorCodeOf, resultOf } from './message.ts'
import { notify, send, type Transport, type UpstreamPermit } from './request.ts'

/** Ending a session may not take longer: nobody waits for what it says. ms. */
const END_MS = 2_000

/** A session at an upstream of the legacy era, after its handshake. */
export interface UpstreamSession {
  /** Null where the upstream gave none: it keeps none, or one for everybody. */
  readonly id: string | null
  readonly protocolVersion: string
}

/** The client that an upstream is told it serves. */
export interface ClientIdentity {
  readonly capabilities: JsonObject
  /** Null: this gateway's own. */
  readonly clientInfo: JsonObject | null
}

/**
 * Makes the headers of a message in a session (2025-11-25, transports: session management, protocol version
 * header).
 */
export function sessionHeaders({ id, protocolVersion }: UpstreamSession): Readonly<Record<string, string>> {
  return { 'mcp-protocol-version': protocolVersion, ...(id !== null && { 'mcp-session-id': id }) }
}

/** A session that is to be opened, and why. */
export interface Opening {
  readonly permit: UpstreamPermit
  readonly resource: McpResource
  readonly client: ClientIdentity
  readonly signal: AbortSignal
}

/**
 * Opens a session (2025-11-25, lifecycle: initialization): offers the newest revision that has sessions and
 * takes any that this gateway knows. Throws McpUpstreamError, or the signal's reason.
 */
export async function openSession(
  transport: Transport,
  { permit, resource, client, signal }: Opening,
): Promise<{ session: UpstreamSession; result: Members }> {
  const [protocolVersion] = LEGACY
  const { capabilities, clientInfo } = client
  const params = { protocolVersion, capabilities, clientInfo: clientInfo ?? IMPLEMENTATION }
  const { head, answer } = await send(transport, {
    permit,
    resource,
    requestId: transport.nextId(),
    era: 'legacy',
    session: 'none',
    method: 'initialize',
    params: JSON.stringify(params),
    headers: {},
    signal,
    settled: () => {},
  })
  const response = await responseOf(answer)
  const result = resultOf(response)
  if (result === null) throw failed(`initialize was answered with error ${errorCodeOf(response)}`)
  const session = { id: sessionIdOf(head.headers), protocolVersion: versionOf(result) }
  const text = notificationMessage('notifications/initialized', null)
  try {
    await notify(transport, { permit, resource, text, headers: sessionHeaders(session), signal })
  } catch (error) {
    await endSession(transport, resource, session)
    throw error
  }
  return { session, result }
}

/**
 * Tells the upstream that a session is over. Needs no permit: it ends a session that a permitted call or
 * reading opened. Best effort: never throws, and takes two seconds at most.
 */
export async function endSession(
  transport: Transport,
  resource: McpResource,
  session: UpstreamSession,
): Promise<void> {
  if (session.id === null) return
  const headers = sessionHeaders(session)
  const signal = AbortSignal.timeout(END_MS)
  try {
    const connection = await transport.connections.of(resource)
    const ending = { method: 'DELETE', headers, body: null, totalMs: END_MS, signal } as const
    const { body } = await exchange(connection, ending)
    drain(body)
  } catch {
    // It forgets the session in its own time.
  }
}

/** Reads the session's id. Visible ASCII alone may stand in it, since it goes back in a header. */
function sessionIdOf({ 'mcp-session-id': id }: ResponseHeaders): string | null {
  if (id === undefined) return null
  if (typeof id !== 'string' || !/^[\x21-\x7e]{1,1024}$/.test(id)) throw failed('its session id is malformed')
  return id
}

function versionOf({ protocolVersion: version }: Members): string {
  if (typeof version === 'string' && LEGACY.includes(version)) return version
  throw failed('it speaks no revision of the protocol that this gateway knows')
}
