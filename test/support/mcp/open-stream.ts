import { request as httpsRequest } from 'node:https'
import { agentOf, type Identity, type Json } from '../gateway.ts'
import { type RpcOptions, request, type Stage } from './stage.ts'

/** An answer of the MCP endpoint that is still coming. */
export interface OpenStream {
  readonly status: number
  readonly type: string
  /** The next message of the stream; undefined where it has ended. */
  readonly next: () => Promise<Json>
  /** Hangs up. */
  readonly hangUp: () => void
  /** True once the stream has ended as it should; false where it was broken off. */
  readonly clean: Promise<boolean>
}

/** Sends a request and reads the events of its answer one by one. */
export async function openStream(
  stage: Stage,
  who: Identity,
  method: string,
  options: RpcOptions = {},
): Promise<OpenStream> {
  const { headers, body } = request(method, options)
  const agent = agentOf(stage.ca, who)
  const req = httpsRequest(`${stage.url}/v1/mcp${options.at ?? ''}`, {
    method: 'POST',
    agent,
    headers: { 'content-type': 'application/json', ...headers },
  })
  req.end(JSON.stringify(body))
  const res = await new Promise<import('node:http').IncomingMessage>((resolve, reject) => {
    req.once('response', resolve)
    req.once('error', reject)
  })
  const { promise: clean, resolve: over } = Promise.withResolvers<boolean>()
  res.once('end', () => over(res.complete))
  res.once('error', () => over(false))
  res.once('close', () => over(res.complete))
  const next = eventsOf(res, clean)
  return {
    status: res.statusCode ?? 0,
    type: res.headers['content-type'] ?? '',
    next,
    hangUp: () => {
      req.destroy()
      agent.destroy()
    },
    clean,
  }
}

// Read as they come, whether or not anybody waits for the next one: else the end would not come either.
function eventsOf(res: import('node:http').IncomingMessage, over: Promise<boolean>): () => Promise<Json> {
  const read: Json[] = []
  let waiting: ((event: Json) => void) | null = null
  let text = ''
  res.on('data', (chunk: Buffer) => {
    text += chunk.toString()
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      const data = /^data: (.*)$/m.exec(text.slice(0, end))?.[1]
      text = text.slice(end + 2)
      if (data === undefined) continue
      if (waiting) waiting(JSON.parse(data))
      else read.push(JSON.parse(data))
      waiting = null
    }
  })
  return async () => {
    if (read.length > 0) return read.shift()
    const event = new Promise<Json>((resolve) => {
      waiting = resolve
    })
    return Promise.race([event, over.then(() => undefined)])
  }
}
