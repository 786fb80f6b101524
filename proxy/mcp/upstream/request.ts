import type { McpResource } from '../../../db/mcp/resources.ts'
import { VERSION } from '../../version.ts'
import { answerOf, type UpstreamAnswer } from './answer.ts'
import type { Expectation } from './asked.ts'
import { drain } from './body.ts'
import type { Connection, Connections } from './connections.ts'
import { failed, McpUpstreamError } from './errors.ts'
import type { Limits } from './events.ts'
import { exchange, type Head, type Outgoing } from './exchange.ts'
import { requestText } from './protocol.ts'

/** What sending a message takes, whoever it is for. */
export interface Transport {
  readonly connections: Connections
  readonly limits: Limits & { readonly totalMs: number }
  /** An id that no request of ours has had. */
  readonly nextId: () => number
}

type Headers = Readonly<Record<string, string>>

/** What no header of an era, a session or a call can take the place of. */
const FIXED: Headers = {
  accept: 'application/json, text/event-stream',
  'accept-encoding': 'identity',
  'content-type': 'application/json',
  'user-agent': `sallyport/${VERSION}`,
}

export interface Request extends Pick<Expectation, 'requestId' | 'era' | 'session' | 'settled'> {
  readonly resource: McpResource
  readonly method: string
  /** JSON text of an object, or null for none. */
  readonly params: string | null
  /** Those of the era, the session and the call. */
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
): Promise<{ head: Head; answer: UpstreamAnswer }> {
  const { resource, requestId, method, params, settled } = request
  let link: Connection
  let head: Head
  try {
    link = await transport.connections.of(resource)
    head = await exchange(link, post(transport, requestText(requestId, method, params), request))
  } catch (error) {
    // Silence, and a caller who gave up, say nothing of the upstream: it may be at work.
    settled(error instanceof McpUpstreamError && error.kind !== 'timeout')
    throw error
  }
  const { credentials } = link
  return { head, answer: await answerOf(head, { ...request, credentials, limits: transport.limits }) }
}

export interface Telling {
  readonly resource: McpResource
  /** The text of a notification or a response. */
  readonly text: string
  readonly headers: Headers
  readonly signal: AbortSignal
}

/** Sends what has no answer. Throws {@link McpUpstreamError} where the upstream does not take it, or the signal's reason. */
export async function notify(transport: Transport, { resource, text, ...rest }: Telling): Promise<void> {
  const link = await transport.connections.of(resource)
  const { status, body } = await exchange(link, post(transport, text, rest))
  drain(body)
  if (status !== 202 && status !== 200 && status !== 204) {
    throw failed(`HTTP status ${status} to a message without an answer`, { status })
  }
}

const post = (
  { limits }: Transport,
  body: string,
  { headers, signal }: { readonly headers: Headers; readonly signal: AbortSignal },
): Outgoing => ({ method: 'POST', headers: { ...headers, ...FIXED }, body, totalMs: limits.totalMs, signal })
