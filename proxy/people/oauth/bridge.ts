import { Socket } from 'node:net'
import { IncomingMessage, ServerResponse } from '../../../db/support/node-http.ts'
import type { Arrival, MemoryOwner } from '../../../plugins/plugin.ts'
import type { Reply } from '../../http/reply.ts'

/** The longest body that is read of anybody here. Bytes. */
export const MAX_PEOPLE_BODY = 16 * 1024

/** A request and an answer of Node's without a connection: the library reads one and writes the other. */
export interface BridgedExchange {
  readonly req: InstanceType<typeof IncomingMessage>
  readonly res: CollectedResponse
}

/** Collects an answer in place of sending it. */
class CollectedResponse extends ServerResponse {
  readonly #chunks: Buffer[] = []
  readonly ended = Promise.withResolvers<void>()

  override write(chunk: string | Buffer): boolean {
    this.#chunks.push(Buffer.from(chunk))
    return true
  }

  override end(chunk?: unknown): this {
    if (typeof chunk === 'string' || Buffer.isBuffer(chunk)) this.write(chunk)
    this.finished = true
    this.ended.resolve()
    this.emit('finish')
    return this
  }

  /** The answer so far as a {@link Reply}. */
  get reply(): Reply {
    const { 'set-cookie': cookies, ...headers } = this.getHeaders()
    const texts = Object.entries(headers).map(([name, value]) => [name, String(value)] as const)
    return {
      status: this.statusCode,
      // Its length and its date are ours to say.
      headers: Object.fromEntries(texts.filter(([name]) => !OURS.has(name))),
      ...(cookies !== undefined && { cookies: [cookies].flat().map(String) }),
      body: Buffer.concat(this.#chunks),
    }
  }
}

const OURS: ReadonlySet<string> = new Set([
  'content-length',
  'date',
  'connection',
  'transfer-encoding',
  'vary',
])

/**
 * Makes the exchange of a request. `host`: of the one URL of the listener, whatever the client's header says. The
 * path and the query are as they came, unless `target` says otherwise. Reads the body, of at most
 * {@link MAX_PEOPLE_BODY}.
 */
export async function exchangeOf(
  arrival: Arrival & MemoryOwner,
  host: string,
  { target, body = null }: { readonly target?: string; readonly body?: Buffer | null } = {},
): Promise<BridgedExchange> {
  const bytes = body ?? (arrival.method === 'POST' ? await arrival.readBody(MAX_PEOPLE_BODY, {}) : EMPTY)
  const socket = Object.assign(new Socket(), { encrypted: true })
  Object.defineProperty(socket, 'remoteAddress', { value: arrival.remoteAddress })
  const req = new IncomingMessage(socket)
  const { 'transfer-encoding': _, origin: __, ...headers } = arrival.headers
  req.method = arrival.method === 'HEAD' ? 'GET' : arrival.method
  req.url = target ?? arrival.path + (arrival.query === '' ? '' : `?${arrival.query}`)
  req.headers = { ...headers, host, ...(bytes.length > 0 && { 'content-length': String(bytes.length) }) }
  req.httpVersion = '1.1'
  req.complete = true
  req.push(bytes)
  req.push(null)
  return { req, res: new CollectedResponse(req) }
}

const EMPTY = Buffer.alloc(0)
