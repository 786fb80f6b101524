import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls'
import type { Test } from 'tap'
import type { Identity } from './gateway.ts'

/** Where to connect and whom to trust: a TestGateway is one. */
export interface Target {
  readonly url: string
  readonly ca: string
}

/** One TLS connection on which exactly the given bytes are sent. */
export interface RawConnection {
  readonly socket: TLSSocket
  readonly send: (bytes: string | Buffer) => void
  /** What has come so far, one character per byte. */
  readonly received: () => string
  /**
   * Resolves with everything received once it holds `text` so many times; rejects where the connection closes
   * before.
   */
  readonly until: (text: string, times?: number) => Promise<string>
  /** Resolves with everything received when the connection has closed, in order or by a reset. */
  readonly closed: Promise<string>
}

/** `localAddress`: which of its own addresses the client comes from. */
export type RawOptions = ConnectionOptions & { readonly localAddress?: string }

/**
 * Opens a connection with an identity, or with none, and resolves when TLS stands. It is destroyed with the
 * test.
 */
export async function rawConnect(
  t: Test,
  { url, ca }: Target,
  who: Identity | null,
  options: RawOptions = {},
): Promise<RawConnection> {
  const { hostname, port } = new URL(url)
  const credentials = who ? { cert: who.cert, key: who.key } : {}
  const socket = connect({ host: hostname, port: Number(port), ca, ...credentials, ...options })
  t.teardown(() => socket.destroy())
  const connection = reading(socket)
  await new Promise<void>((resolve, reject) => {
    socket.once('secureConnect', resolve)
    socket.once('error', reject)
  })
  return connection
}

/** Sends the bytes on a connection of their own and resolves with all that came until it closed. */
export async function rawAnswer(
  t: Test,
  target: Target,
  who: Identity | null,
  bytes: string | Buffer,
): Promise<string> {
  const { send, closed } = await rawConnect(t, target, who)
  send(bytes)
  return closed
}

/** The status codes of all final answers in what was received, in order. */
export function statuses(received: string): readonly number[] {
  return [...received.matchAll(/HTTP\/1\.1 (\d{3}) /g)]
    .map(([, code]) => Number(code))
    .filter((c) => c >= 200)
}

/** A well-formed request of HTTP/1.1; `content-length` is added where there is a body. */
export function requestBytes(
  method: string,
  path: string,
  headers: readonly string[] = [],
  body = '',
): string {
  const length = body === '' ? [] : [`content-length: ${Buffer.byteLength(body)}`]
  return `${[`${method} ${path} HTTP/1.1`, 'host: localhost', ...headers, ...length].join('\r\n')}\r\n\r\n${body}`
}

/** A chat call for a model, as bytes. */
export function chatBytes(model: string, headers: readonly string[] = [], more: object = {}): string {
  const body = JSON.stringify({ model, messages: [{ role: 'user', content: 'hi' }], ...more })
  return requestBytes('POST', '/v1/chat/completions', ['content-type: application/json', ...headers], body)
}

function reading(socket: TLSSocket): RawConnection {
  let text = ''
  const waiting = new Set<() => void>()
  const look = (): void => {
    for (const waiter of waiting) waiter()
  }
  socket.on('data', (chunk: Buffer) => {
    text += chunk.toString('latin1')
    look()
  })
  // A reset is one of the ways in which a server hangs up: `closed` tells.
  socket.on('error', () => {})
  const closed = new Promise<string>((resolve) => socket.once('close', () => resolve(text)))
  socket.once('close', look)
  const until = (wanted: string, times = 1): Promise<string> =>
    new Promise((resolve, reject) => {
      const waiter = (): void => {
        const found = text.split(wanted).length > times
        if (!found && !socket.closed) return
        waiting.delete(waiter)
        if (found) resolve(text)
        else
          reject(
            new Error(`closed before ${JSON.stringify(wanted)} came: ${JSON.stringify(text.slice(-300))}`),
          )
      }
      waiting.add(waiter)
      waiter()
    })
  return { socket, send: (bytes) => void socket.write(bytes), received: () => text, until, closed }
}
