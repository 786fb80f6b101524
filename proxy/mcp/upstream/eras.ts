import type { McpResource } from '../../../db/mcp/resources.ts'
import type { JsonObject, UnknownRecord } from '../../../db/support/json.ts'
import { hangupFromSignal, OWN_AUTHORITY } from '../../../plugins/call-authority.ts'
import type { CallTrace } from '../../../plugins/call-trace.ts'
import type { HangupSignal, MemoryReservation } from '../../../plugins/plugin.ts'
import { METHOD_NOT_FOUND, notificationMessage, UNSUPPORTED_VERSION } from '../protocol/json-text.ts'
import { GATEWAY_IMPLEMENTATION, LEGACY_VERSIONS, MODERN_VERSION } from '../protocol/versions.ts'
import type { McpAnswer } from './answers.ts'
import type { CallerAccount } from './connections.ts'
import { mcpUpstreamFailure, unknownRevisions } from './errors.ts'
import { drainBody, exchangeHttp, type HeaderList, type ResponseHeaders } from './exchange.ts'
import { errorCodeOf, responseResult, supportedIn, type UpstreamMessage } from './message.ts'
import { offerOwnAnswer, ownAnswer, readFinalResponse } from './own-answers.ts'
import { sendMcpRequest, sendOneWayMessage, type UpstreamPermit, type UpstreamTransport } from './request.ts'
import type { SessionOpening, UpstreamSession } from './sessions.ts'

export interface ModernCall {
  readonly permit: UpstreamPermit
  readonly resource: McpResource
  /** Null: its `auth_type` is not `oauth`. */
  readonly account: CallerAccount | null
  readonly method: string
  /** JSON text of the params object, as the upstream must see it; null for none. */
  readonly params: string | Buffer | null
  /** `mcp-name` and `mcp-param-*`. Any other is left out; the rest is put in here. */
  readonly headers: Readonly<Record<string, string>>
  readonly hangup: HangupSignal
  /** The account that the answer is counted on; null if no caller waits for it. */
  readonly held: MemoryReservation | null
  /** The trace of the call, and the upstream's name of what it calls. Absent: nobody is told. */
  readonly trace?: CallTrace | null
  readonly traced?: string | null
}

/** Sends a request to an upstream of the modern era: closing the connection is all that cancels it. */
export const callModern = (transport: UpstreamTransport, call: ModernCall): Promise<McpAnswer> =>
  sendMcpRequest(transport, {
    ...call,
    requestId: transport.nextId(),
    era: 'modern',
    session: 'none',
    headers: modernHeaders(call),
    settled: NOTHING,
  })

const NOTHING = (): void => {}

/** Makes the headers of every modern request, and those that repeat params. No other name passes. */
function modernHeaders({ method, headers }: ModernCall): HeaderList {
  const list = ['mcp-protocol-version', MODERN_VERSION, 'mcp-method', method]
  for (const [written, value] of Object.entries(headers)) {
    const name = written.toLowerCase()
    if (name === 'mcp-name' || name.startsWith('mcp-param-')) list.push(name, value)
  }
  return list
}

/** The longest end of a session: nobody waits for its answer. ms. */
const END_MS = 2_000

/** Makes the headers of a message in a session (2025-11-25, transports: session management). */
const sessionHeaders = (id: string | null, protocolVersion: string): HeaderList => [
  'mcp-protocol-version',
  protocolVersion,
  ...(id === null ? [] : ['mcp-session-id', id]),
]

interface LegacyQuestion extends Pick<SessionOpening, 'permit' | 'resource' | 'account' | 'hangup'> {
  readonly method: string
  readonly params: UnknownRecord
  readonly headers: HeaderList
  /** The capabilities that the upstream was told of, for what it asks meanwhile. */
  readonly declared: JsonObject
}

interface LegacyResponse extends Pick<McpAnswer, 'headers'> {
  readonly response: UpstreamMessage
}

/** Asks an upstream something of the gateway's own, and answers what it asks before it responds. */
export async function askLegacy(
  transport: UpstreamTransport,
  { params, declared, ...asked }: LegacyQuestion,
): Promise<LegacyResponse> {
  const answer = await sendMcpRequest(transport, {
    ...asked,
    requestId: transport.nextId(),
    era: 'legacy',
    session: 'none',
    params: JSON.stringify(params),
    held: null,
    settled: () => {},
  })
  const { permit, resource, account, hangup, headers } = asked
  const opened = asked.method === 'initialize' ? sessionIdOf(answer.headers) : null
  const all = opened === null ? headers : [...headers, 'mcp-session-id', opened]
  const response = await readFinalResponse(answer, (request) => {
    const text = ownAnswer(request, declared)
    return offerOwnAnswer(
      sendOneWayMessage(transport, { permit, resource, account, text, headers: all, hangup }),
    )
  })
  return { response, headers: answer.headers }
}

/**
 * Opens a session (2025-11-25, lifecycle: initialization): offers the newest revision that has sessions and
 * takes any that this gateway knows. Throws as {@link sendMcpRequest} does.
 */
export async function openUpstreamSession(
  transport: UpstreamTransport,
  { permit, resource, account, client, hangup }: SessionOpening,
): Promise<{ session: UpstreamSession; result: UnknownRecord }> {
  const [protocolVersion] = LEGACY_VERSIONS
  const { capabilities, clientInfo } = client
  const params = { protocolVersion, capabilities, clientInfo: clientInfo ?? GATEWAY_IMPLEMENTATION }
  const asked = {
    permit,
    resource,
    account,
    hangup,
    method: 'initialize',
    params,
    headers: [],
    declared: capabilities,
  }
  const { response, headers } = await askLegacy(transport, asked)
  const result = responseResult(response)
  if (result === null) throw mcpUpstreamFailure(handshakeProblem(response))
  const id = sessionIdOf(headers)
  const version = versionOf(result)
  const session = { id, protocolVersion: version, headers: sessionHeaders(id, version) }
  const text = notificationMessage('notifications/initialized', null)
  try {
    await sendOneWayMessage(transport, { permit, resource, account, text, headers: session.headers, hangup })
  } catch (error) {
    await endUpstreamSession(transport, resource, session, account)
    throw error
  }
  return { session, result }
}

/** Tells the upstream that a session is over. Never throws, and takes two seconds at most. */
export async function endUpstreamSession(
  transport: UpstreamTransport,
  resource: McpResource,
  session: UpstreamSession,
  account: CallerAccount | null,
): Promise<void> {
  if (session.id === null) return
  const { headers } = session
  const hangup = hangupFromSignal(AbortSignal.timeout(END_MS))
  try {
    const connection = await transport.connections.of(resource, account, 'DELETE')
    const authority = OWN_AUTHORITY
    const ending = { method: 'DELETE', headers, body: null, totalMs: END_MS, hangup, authority } as const
    const { body } = await exchangeHttp(connection, ending)
    drainBody(body)
  } catch {
    // It forgets the session in its own time.
  }
}

/** Reads the session's id. Visible ASCII alone may stand in it, since it goes back in a header. */
function sessionIdOf({ 'mcp-session-id': id }: ResponseHeaders): string | null {
  if (id === undefined) return null
  if (typeof id !== 'string' || !/^[\x21-\x7e]{1,1024}$/.test(id))
    throw mcpUpstreamFailure('its session id is malformed')
  return id
}

function versionOf({ protocolVersion: version }: UnknownRecord): string {
  if (typeof version === 'string' && LEGACY_VERSIONS.includes(version)) return version
  throw mcpUpstreamFailure(unknownRevisions([version]))
}

/** Says why a server answers `initialize` with an error: cause and cure, and none of its words. */
function handshakeProblem(response: UpstreamMessage): string {
  const code = errorCodeOf(response)
  const told = `initialize was answered with error ${code}`
  const supported = supportedIn(response)
  if (code === UNSUPPORTED_VERSION || supported.length > 0) return `${told}: ${unknownRevisions(supported)}`
  const cause = HANDSHAKE_CAUSES.get(code)
  return cause === undefined ? told : `${told}: ${cause}`
}

const HANDSHAKE_CAUSES: ReadonlyMap<number | null, string> = new Map([
  [METHOD_NOT_FOUND, 'it speaks JSON-RPC, but not MCP: correct endpoint_url'],
  [-32602, `it does not take protocol revision ${LEGACY_VERSIONS[0]}, or what clients say of themselves`],
  [-32603, 'it failed by itself: look into the log of the server'],
])
