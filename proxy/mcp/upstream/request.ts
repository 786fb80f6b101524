import type { McpResource } from '../../../db/mcp/resources.ts'
import type { Granted, OperatorPermit } from '../../../plugins/permit.ts'
import type { Hangup } from '../../../plugins/plugin.ts'
import { VERSION } from '../../version.ts'
import type { Limits } from '../options.ts'
import { requestMessage } from '../protocol/json-text.ts'
import { answerOf, type Expectation, type McpAnswer } from './answer.ts'
import type { Connection, Connections } from './connections.ts'
import { failed, McpUpstreamError } from './errors.ts'
import { drain, exchange, type Head, type HeaderList, type Outgoing } from './exchange.ts'

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

/** The headers of every message. */
const FIXED: HeaderList = [
  'accept',
  'application/json, text/event-stream',
  'accept-encoding',
  'identity',
  'content-type',
  'application/json',
  'user-agent',
  `sallyport/${VERSION}`,
]

/** The reason why a message may be sent at all: a granted call, or the reading of a server's list. */
export type UpstreamPermit = Granted | OperatorPermit

export interface Request extends Omit<Expectation, 'credentials' | 'limits'> {
  readonly permit: UpstreamPermit
  readonly resource: McpResource
  readonly method: string
  /** JSON text of an object, or null for none. Bytes: a large one. */
  readonly params: string | Buffer | null
  /** The headers of the era, the session and the call. None of them may be one of every message. */
  readonly headers: HeaderList
}

/**
 * Sends a request and resolves with its answer. Throws {@link McpUpstreamError}, or the reason why nobody waits any
 * more. `settled` is called once, whatever happens.
 */
export async function send(transport: Transport, request: Request): Promise<McpAnswer> {
  const { resource, settled } = request
  let connection: Connection
  let head: Head
  try {
    const found = transport.connections.of(resource)
    connection = found instanceof Promise ? await found : found
    head = await exchange(connection, post(transport, messageOf(request), request))
  } catch (error) {
    // Silence, and a caller who gave up, say nothing of the upstream: it may be at work.
    settled(error instanceof McpUpstreamError && error.kind !== 'timeout')
    throw error
  }
  const { credentials } = connection
  return answerOf(head, { ...request, credentials, limits: transport.limits })
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
  readonly headers: HeaderList
  readonly hangup: Hangup
}

/**
 * Sends a message that has no answer. Throws {@link McpUpstreamError} where the upstream does not take it, or
 * the reason why nobody waits any more.
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
  { headers, hangup }: Pick<Request, 'headers' | 'hangup'>,
): Outgoing => ({ method: 'POST', headers: [...headers, ...FIXED], body, totalMs: limits.totalMs, hangup })
