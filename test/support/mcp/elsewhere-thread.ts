// The thread of elsewhere.ts.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { request } from 'node:https'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { parentPort } from 'node:worker_threads'

export type Command =
  | {
      readonly do: 'answer'
      readonly method: string
      readonly result: string
      readonly as: As
    }
  | { readonly do: 'prepare'; readonly name: string; readonly request: Prepared }
  | Readonly<{ do: 'send'; name: string; to: string; ca: string; cert?: string; key?: string }>

/** A request, but for its sender. */
export interface Prepared {
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

/** The answer of a gateway, cut. */
export interface Sent {
  readonly status: number
  readonly length: number
  /** The beginning. */
  readonly text: string
}

export interface Heard {
  readonly kind: 'heard'
  readonly url: string
  readonly sent: Sent | null
}

const KEPT = 2_000
/** A result as one message or as an event, or an error. */
export type As = 'json' | 'event' | 'error'

const port = parentPort
if (!port) throw new Error('elsewhere-thread.ts runs as a worker thread only')

const answers = new Map<string, { readonly result: string; readonly as: As }>()
const requests = new Map<string, Prepared>()
const INITIALIZED =
  '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"e","version":"1"}}'

const server = createServer((req, res) => void serve(req, res))
server.listen(0, '127.0.0.1', () => hear(null))

async function serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
  const text = (await buffer(req)).toString()
  if (req.method === 'DELETE') {
    res.writeHead(204).end()
    return
  }
  const { id, method } = JSON.parse(text) as { id?: unknown; method?: string }
  const json = { 'content-type': 'application/json' }
  if (method === 'server/discover') {
    res.writeHead(400, json).end('{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no"}}')
    return
  }
  if (id === undefined) {
    res.writeHead(202).end()
    return
  }
  const initial = { result: method === 'initialize' ? INITIALIZED : '{}', as: 'json' } as const
  const { result, as } = answers.get(method ?? '') ?? initial
  const member = as === 'error' ? 'error' : 'result'
  const message = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"${member}":${result}}`
  if (as !== 'event') res.writeHead(200, json).end(message)
  else res.writeHead(200, { 'content-type': 'text/event-stream' }).end(`data: ${message}\n\n`)
}

port.on('message', (command: Command) => void act(command))

async function act(command: Command): Promise<void> {
  if (command.do === 'answer') answers.set(command.method, command)
  if (command.do === 'prepare') requests.set(command.name, command.request)
  hear(command.do === 'send' ? await send(command) : null)
}

async function send({ name, to, ca, cert, key }: Command & { do: 'send' }): Promise<Sent> {
  const { path, headers, body } = requests.get(name) ?? { path: '/', headers: {}, body: '' }
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>()
  const req = request(`${to}${path}`, { method: 'POST', ca, cert, key, headers, agent: false }, resolve)
  req.once('error', reject)
  req.end(body)
  const res = await promise
  const answer = await buffer(res)
  return { status: res.statusCode ?? 0, length: answer.length, text: answer.toString('utf8', 0, KEPT) }
}

function hear(sent: Sent | null): void {
  const { port: at } = server.address() as AddressInfo
  port?.postMessage({ kind: 'heard', url: `http://127.0.0.1:${at}/mcp`, sent } satisfies Heard)
}
