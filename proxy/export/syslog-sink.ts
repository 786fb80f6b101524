import { once } from 'node:events'
import { isIP, connect as netConnect } from 'node:net'
import { hostname as machineName } from 'node:os'
import { type TLSSocket, connect as tlsConnect } from 'node:tls'
import { HostNameCache } from '../../db/host-names/kept-names.ts'
import { withDeadline } from '../../plugins/deadline.ts'
import { addressRefusal, blockedAddresses } from '../egress/address.ts'
import { CONNECT_MS, PAGE_MS } from './https-sink.ts'
import type { SinkOptionsOf } from './options.ts'
import type { DoubtfulPlaces, ExportSink, SinkPage } from './sink.ts'
import { syslogFrame } from './syslog-frame.ts'

/** The time before a connection broke whose rows are sent again: nothing says if they were taken. ms. */
export const DOUBT_MS = 30_000

type SyslogTarget = Pick<SinkOptionsOf<'syslog'>, 'host' | 'port' | 'client'>

interface SentPage {
  readonly at: number
  /** The row before the first one of each stream. */
  readonly before: DoubtfulPlaces
}

/** Sends lines as syslog over TLS (RFC 5425), on one connection, which is verified by the host's name. */
export class SyslogSink implements ExportSink {
  readonly #target: SyslogTarget
  readonly #pageMs: number
  readonly #resolve = new HostNameCache().resolve
  readonly #sender = { hostname: printable(machineName()), pid: process.pid }
  #socket: TLSSocket | null = null
  #sent: SentPage[] = []
  #doubtful = new Map<string, number>()

  constructor(target: SyslogTarget, pageMs = PAGE_MS) {
    this.#target = target
    this.#pageMs = pageMs
  }

  async send(page: SinkPage, signal: AbortSignal): Promise<void> {
    const { host } = this.#target
    if (this.#doubtful.size > 0)
      throw new Error(`${host} closed the connection: what was sent shortly before is sent again`)
    const late = (): Error =>
      new Error(`${host} takes no more: nothing was read for ${this.#pageMs / 1_000} s`)
    await withDeadline({ ms: this.#pageMs, late, signal }, async (over) => {
      const socket = this.#socket ?? (await this.#open(over))
      over.throwIfAborted()
      over.addEventListener('abort', () => socket.destroy(), { once: true })
      this.#note(page)
      const { rows, lines } = page
      const frames = rows.map((row, n) => syslogFrame(row, lines[n] ?? '', this.#sender))
      await written(socket, frames.join(''))
    })
  }

  doubtful(): DoubtfulPlaces {
    const places = this.#doubtful
    this.#doubtful = new Map()
    return places
  }

  async close(): Promise<void> {
    const socket = this.#socket
    this.#socket = null
    if (!socket || socket.destroyed) return
    socket.end()
    await Promise.race([once(socket, 'close'), once(AbortSignal.timeout(1_000), 'abort')]).catch(() => {})
    socket.destroy()
  }

  #note({ rows }: SinkPage): void {
    const at = performance.now()
    const before = new Map<string, number>()
    for (const { stream, seq } of rows) if (!before.has(stream)) before.set(stream, seq - 1)
    this.#sent = [...this.#sent.filter((page) => at - page.at < DOUBT_MS), { at, before }]
  }

  /** Remembers what may not have come to its end. */
  #broken(socket: TLSSocket): void {
    if (this.#socket !== socket) return
    this.#socket = null
    const at = performance.now()
    for (const page of this.#sent.filter((sent) => at - sent.at < DOUBT_MS))
      for (const [stream, seq] of page.before)
        this.#doubtful.set(stream, Math.min(seq, this.#doubtful.get(stream) ?? seq))
    this.#sent = []
  }

  async #open(signal: AbortSignal): Promise<TLSSocket> {
    const { host } = this.#target
    const late = (): Error => new Error(`no connection to ${host} in time`)
    const socket = await withDeadline({ ms: CONNECT_MS, late, signal }, (over) => this.#connect(over))
    this.#socket = socket
    socket.on('close', () => this.#broken(socket))
    // A server of syslog says nothing. What one says is thrown away, and does not keep the end from being seen.
    socket.resume()
    return socket
  }

  async #connect(signal: AbortSignal): Promise<TLSSocket> {
    const { host, port, client } = this.#target
    const [address] = isIP(host) === 0 ? (await this.#resolve(host)).map((one) => one.address) : [host]
    if (address === undefined) throw new Error(`${host} has no address`)
    const refusal = addressRefusal(address, true)
    if (refusal !== null) throw new Error(`connecting to ${host} is refused: ${refusal}`)
    signal.throwIfAborted()
    const tcp = netConnect({ host: address, port, blockList: BLOCKED, noDelay: true, keepAlive: true })
    const name = isIP(host) === 0 ? { servername: host } : {}
    const socket = tlsConnect({ ...client, ...name, socket: tcp, host, rejectUnauthorized: true })
    signal.addEventListener('abort', () => socket.destroy(), { once: true })
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    tcp.on('error', reject)
    socket.on('error', reject)
    socket.once('close', () => reject(new Error(`${host} closed the connection`)))
    socket.once('secureConnect', resolve)
    await promise
    return socket
  }
}

const BLOCKED = blockedAddresses(true)

/** A name in a header of syslog has no space (RFC 5424 §6.2.4). */
const printable = (name: string): string => name.replaceAll(/[^\x21-\x7e]/g, '_').slice(0, 255) || '-'

function written(socket: TLSSocket, text: string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  const gone = (): void => reject(new Error('the connection was closed'))
  socket.once('close', gone)
  socket.write(text, (error) => (error ? reject(error) : resolve()))
  return promise.finally(() => socket.off('close', gone))
}
