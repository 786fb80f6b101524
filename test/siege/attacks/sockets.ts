import { connect as connectTcp, type Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from 'node:tls'
import type { Random, Siege } from './target.ts'

/** The time that a handshake of an attacker may take. ms. */
const CONNECT_MS = 10_000

/** The time in which a whole herd must be in. ms. */
export const HERD_MS = 30_000

/** An address of this machine that is not the one of the honest callers: all of 127.0.0.0/8 is. */
export const someAddress = (random: Random): string => `127.0.1.${1 + Math.floor(random() * 40)}`

/** The one address of attackers who share one. */
export const ONE_ADDRESS = '127.0.2.1'

/** Opens a TLS connection, with a certificate or without. Rejects where none comes to be. */
export function openTls(
  { target, signal }: Pick<Siege, 'target' | 'signal'>,
  options: ConnectionOptions,
  localAddress: string,
  connectMs = CONNECT_MS,
): Promise<TLSSocket> {
  const where = { host: '127.0.0.1', port: target.port, localAddress }
  // Whoever attacks does not care whom.
  const socket = connectTls({ rejectUnauthorized: false, ...where, ...options })
  return opened(socket, 'secureConnect', signal, connectMs)
}

/** Opens a TCP connection. */
export function openTcp({ target, signal }: Siege, localAddress: string): Promise<Socket> {
  return opened(connectTcp({ host: '127.0.0.1', port: target.port, localAddress }), 'connect', signal)
}

function opened<S extends Socket>(
  socket: S,
  event: string,
  signal: AbortSignal,
  connectMs = CONNECT_MS,
): Promise<S> {
  const abort = (): void => void socket.destroy()
  signal.addEventListener('abort', abort, { once: true })
  socket.once('close', () => signal.removeEventListener('abort', abort))
  socket.setTimeout(connectMs, abort)
  return new Promise((resolve, reject) => {
    socket.once(event, () => {
      socket.setTimeout(0)
      resolve(socket)
    })
    socket.on('error', reject)
    socket.once('close', () => reject(gone()))
  })
}

const gone = (): NodeJS.ErrnoException => Object.assign(new Error('closed'), { code: 'ECONNRESET' })

/** Writes, and waits until the kernel has it. Rejects where the connection is gone. */
export function write(socket: Socket, bytes: string | Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    const closed = (): void => reject(gone())
    socket.once('close', closed)
    socket.write(bytes, (error) => {
      socket.off('close', closed)
      if (error) reject(error)
      else resolve()
    })
  })
}

/** Waits until the other end has closed, at most so long, and closes. */
export async function linger(socket: Socket, ms: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  socket.once('close', resolve)
  socket.setTimeout(0)
  const late = setTimeout(resolve, ms)
  if (!socket.closed) await promise
  clearTimeout(late)
  socket.destroy()
}

/** Resolves with the first bytes of an answer, or with nothing where the connection ends or `ms` pass. */
export async function firstAnswer(socket: Socket, ms: number): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>()
  socket.once('data', (bytes: Buffer) => resolve(bytes.toString('latin1', 0, 64)))
  socket.once('close', () => resolve(''))
  const late = setTimeout(resolve, ms, '')
  const text = await promise
  clearTimeout(late)
  return text
}

/**
 * Does the work again and again in so many lanes, each at most every `everyMs`, until the attack is over. That the gateway
 * hangs up is what should happen; any other fault of the work rejects.
 */
export async function lanes(
  { signal, tried }: Siege,
  count: number,
  everyMs: number,
  work: (lane: number) => Promise<void>,
): Promise<void> {
  const lane = async (index: number): Promise<void> => {
    await rest((everyMs * index) / count, signal)
    while (!signal.aborted) {
      const at = performance.now()
      tried()
      await work(index).catch((error: NodeJS.ErrnoException) => {
        if (error.code === undefined && !signal.aborted) throw error
      })
      await rest(everyMs - (performance.now() - at), signal)
    }
  }
  await Promise.all(Array.from({ length: count }, (_, index) => lane(index)))
}

/** Waits at least one turn of the loop; ends at once when the attack is over. */
export async function rest(ms: number, signal: AbortSignal): Promise<void> {
  await pause(Math.max(1, ms), undefined, { signal }).catch(() => {})
}

/** A request's head and body. `content-length` is added. */
export function requestOf(method: string, path: string, headers: readonly string[], body = ''): string {
  const lines = [`${method} ${path} HTTP/1.1`, 'host: localhost', ...headers]
  const length = `content-length: ${Buffer.byteLength(body)}`
  return `${[...lines, length].join('\r\n')}\r\n\r\n${body}`
}

export const JSON_TYPE = 'content-type: application/json'
export const CHAT_PATH = '/v1/chat/completions'
