import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'

/** One request as its bytes came in on the wire. */
export interface Wire {
  readonly head: string
  readonly body: Buffer
  /** Of the connections that the upstream has seen: which one, from 1. */
  readonly connection: number
}

export interface RawUpstream {
  /** Ends with /v1. */
  readonly url: string
  readonly seen: readonly Wire[]
  /** Resolves when a connection of the gateway's has closed, whoever closed it. */
  readonly closed: Promise<void>
  readonly connections: () => number
}

interface Test {
  readonly teardown: (handler: () => unknown) => unknown
}

/**
 * An upstream that knows nothing of HTTP but where a request ends: what it answers, it writes byte by byte.
 */
export async function rawUpstream(
  t: Test,
  answer: (socket: Socket, request: Wire) => void,
): Promise<RawUpstream> {
  const seen: Wire[] = []
  const sockets = new Set<Socket>()
  const { promise: closed, resolve } = Promise.withResolvers<void>()
  let connections = 0
  const server = createServer((socket) => {
    connections += 1
    const connection = connections
    sockets.add(socket)
    socket.on('error', () => resolve())
    socket.on('close', () => resolve())
    readRequests(socket, connection, (request) => {
      seen.push(request)
      answer(socket, request)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return {
    url: `http://127.0.0.1:${portOf(server.address())}/v1`,
    seen,
    closed,
    connections: () => connections,
  }
}

/** An address where nobody listens. */
export async function nobody(): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const port = portOf(server.address())
  server.close()
  await once(server, 'close')
  return `http://127.0.0.1:${port}/v1`
}

export const portOf = (address: AddressInfo | string | null): number => {
  if (address === null || typeof address === 'string') throw new Error('the server does not listen on a port')
  return address.port
}

function readRequests(socket: Socket, connection: number, found: (request: Wire) => void): void {
  let bytes = Buffer.alloc(0)
  socket.on('data', (chunk) => {
    bytes = Buffer.concat([bytes, chunk])
    for (;;) {
      const end = bytes.indexOf('\r\n\r\n')
      if (end < 0) return
      const head = bytes.toString('latin1', 0, end)
      const length = Number(/\r\ncontent-length: (\d+)/i.exec(head)?.[1] ?? 0)
      if (bytes.length < end + 4 + length) return
      const body = bytes.subarray(end + 4, end + 4 + length)
      bytes = bytes.subarray(end + 4 + length)
      found({ head, body, connection })
    }
  })
}

/** A whole HTTP answer with a content-length. */
export function answer(status: number, body: string, headers: Readonly<Record<string, string>> = {}): string {
  const all = {
    'content-type': 'application/json',
    'content-length': String(Buffer.byteLength(body)),
    ...headers,
  }
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
  return `HTTP/1.1 ${status} Whatever\r\n${lines.join('')}\r\n${body}`
}

/** The head of an answer whose body follows in chunks. */
export const chunkedHead = (type = 'text/event-stream', more = ''): string =>
  `HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\ntransfer-encoding: chunked\r\n${more}\r\n`

export const chunk = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`
