import type { McpResource } from '../../../db/mcp/resources.ts'
import type { Granted, OperatorPermit } from '../../../plugins/permit.ts'
import { VERSION } from '../../version.ts'
import type { Limits } from '../options.ts'
import { requestMessage } from '../protocol/json-text.ts'
import { answerOf, type Expectation, type McpAnswer } from './answer.ts'
import type { Connection, Connections } from './connections.ts'
import { failed, McpUpstreamError } from './errors.ts'
import { drain, exchange, type Head, type Outgoing } from './exchange.ts'

/**
 * The transport to all MCP servers. Only `openMcpUpstream` makes one, and it hands it to nobody outside this
 * folder.
 */
export interface Transport {
  readonly connections: Connections
  readonly limits: Limits
  /** An id that no request of ours has had. */
  readonly nextId: () => number
}

type Headers = Readonly<Record<string, string>>

/** The headers that no header of an era, a session or a call can take the place of. */
const FIXED: Headers = {
  accept: 'application/json, text/event-stream',
  'accept-encoding': 'identity',
  'content-type': 'application/json',
  'user-agent': `sallyport/${VERSION}`,
}

/** The reason why a message may be sent at all: a granted call, or the reading of a server's list. */
export type UpstreamPermit = Granted | OperatorPermit

export interface Request extends Pick<Expectation, 'requestId' | 'era' | 'session' | 'settled' | 'held'> {
  readonly permit: UpstreamPermit
  readonly resource: McpResource
  readonly method: string
  /** JSON text of an object, or null for none. Bytes: a large one. */
  readonly params: string | Buffer | null
  /** The headers of the era, the session and the call. */
  readonly headers: Headers
  readonly signal: AbortSignal
}

/**
 * Sends a request and resolves with the head of its answer and the answer that begins with it.
 * Throws {@link McpUpstreamError}, or the signal's reason. `settled` is called once, whatever happens.
 */
export async function send(
  transport: Transport,
  request: Request,
): Promise<{ head: Head; answer: McpAnswer }> {
  const { resource, settled } = request
  let connection: Connection
  let head: Head
  try {
    connection = await transport.connections.of(resource)
    head = await exchange(connection, post(transport, messageOf(request), request))
  } catch (error) {
    // Silence, and a caller who gave up, say nothing of the upstream: it may be at work.
    settled(error instanceof McpUpstreamError && error.kind !== 'timeout')
    throw error
  }
  const { credentials } = connection
  return { head, answer: await answerOf(head, { ...request, credentials, limits: transport.limits }) }
}

function messageOf({ requestId, method, params }: Request): string | Buffer {
  if (params === null || typeof params === 'string') return requestMessage(requestId, method, params)
  const head = `{"jsonrpc":"2.0","id":${requestId},"method":${JSON.stringify(method)},"params":`
  return Buffer.concat([Buffer.from(head), params, Buffer.from('}')])
}

export interface Notification {
  readonly permit: UpstreamPermit
  readonly resource: McpResource
  /** The text of a notification or a response. */
  readonly text: string
  readonly headers: Headers
  readonly signal: AbortSignal
}

/**
 * Sends a message that has no answer. Throws {@link McpUpstreamError} where the upstream does not take it, or
 * the signal's reason.
 */
export async function notify(transport: Transport, { resource, text, ...rest }: Notification): Promise<void> {
  const connection = await transport.connections.of(resource)
  const { status, body } = await exchange(connection, post(transport, text, rest))
  drain(body)
  if (status !== 202 && status !== 200 && status !== 204) {
    throw failed(`HTTP status ${status} to a message without an answer`, { status })
  }
}

const post = (
  { limits }: Transport,
  body: string | Buffer,
  { headers, signal }: { readonly headers: Headers; readonly signal: AbortSignal },
): Outgoing => ({ method: 'POST', headers: { ...headers, ...FIXED }, body, totalMs: limits.totalMs, signal })
