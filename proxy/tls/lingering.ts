import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'

/** The bounds of what is read of connections that were answered before their requests had ended. */
export interface LingerLimits {
  /** The time from the end of the answer to the end of the connection. ms. */
  readonly lingerMs: number
  readonly maxBytes: number
  readonly maxConnections: number
}

/** Twice the longest body that is accepted by default, and the time that it takes on an ordinary line. */
export const LINGER_LIMITS: LingerLimits = {
  lingerMs: 15_000,
  maxBytes: 64 * 1024 * 1024,
  maxConnections: 256,
}

/** The interval at which a connection is looked at. ms. */
const LOOK_MS = 200
/** The bytes of an interval by which a client proves that it still sends. */
const MIN_PROGRESS = 4_096
const MAX_SILENT_LOOKS = 5

/** Readings of all lingering connections in one turn of the loop, of 64 KiB at most each. */
const MAX_READINGS = 16

interface LingeringConnection {
  readonly socket: Socket
  readonly address: string
  readonly until: number
  readonly look: NodeJS.Timeout
  bytes: number
  seen: number
  /** Intervals in a row in which hardly anything came. */
  silent: number
}

/**
 * The connections that were answered before all of their requests had come (RFC 9112 §9.6): closing one with
 * bytes unread resets it, and its client may never see the answer. What it still sends is read and dropped
 * within bounds. The connection is half closed when the client falls silent: earlier, relays that know no
 * half-closed connections would end it. If too many linger, the oldest of the address with the most ends.
 */
export class LingeringConnections {
  readonly #limits: LingerLimits
  readonly #open = new Map<Socket, LingeringConnection>()
  /** Connections that were read enough in this turn, in the order of their coming. */
  readonly #waiting = new Set<Socket>()
  #readings = 0
  #turns = false

  constructor(limits: LingerLimits = LINGER_LIMITS) {
    this.#limits = limits
  }

  get size(): number {
    return this.#open.size
  }

  /** Takes a connection on which the answer was written. Nobody else may read from it, or write to it. */
  add(socket: Socket, address: string): void {
    if (socket.destroyed || socket.readableEnded) return void socket.destroy()
    if (this.#open.size >= this.#limits.maxConnections) this.#endOne()
    const connection: LingeringConnection = {
      socket,
      address,
      until: performance.now() + this.#limits.lingerMs,
      look: setInterval(() => this.#look(connection), LOOK_MS),
      bytes: 0,
      seen: 0,
      silent: 0,
    }
    this.#open.set(socket, connection)
    socket.once('close', () => this.#forget(connection))
    // A reset is one of the ways in which a client hangs up.
    socket.on('error', () => {})
    socket.once('end', () => socket.destroy())
    const drop = (): void => {
      socket.removeAllListeners('data').on('data', ({ length }: Buffer) => this.#drop(connection, length))
    }
    // Node's HTTP reads a socket by itself, and takes up again by this event what it has stopped.
    if (socket.readableFlowing === true) drop()
    else socket.once('resume', drop).resume()
  }

  endAll(): void {
    for (const socket of this.#open.keys()) socket.destroy()
  }

  #drop(connection: LingeringConnection, length: number): void {
    const { socket } = connection
    connection.bytes += length
    this.#readings += 1
    if (connection.bytes > this.#limits.maxBytes) this.#cut(socket)
    else if (this.#readings >= MAX_READINGS) {
      socket.pause()
      this.#waiting.add(socket)
    }
    this.#nextTurn()
  }

  #look(connection: LingeringConnection): void {
    const { socket, until, bytes, seen } = connection
    const isSilent = bytes - seen < MIN_PROGRESS
    connection.seen = bytes
    connection.silent = isSilent ? connection.silent + 1 : 0
    if (performance.now() >= until + MAX_SILENT_LOOKS * LOOK_MS || connection.silent >= MAX_SILENT_LOOKS)
      socket.destroy()
    else if (performance.now() >= until) this.#cut(socket)
    else if (isSilent) socket.end()
  }

  /** Ends it for good: a client that writes on after this end finds the answer unharmed, on most systems. */
  #cut(socket: Socket): void {
    socket.pause()
    this.#waiting.delete(socket)
    socket.end(() => socket.destroy())
  }

  #nextTurn(): void {
    if (this.#turns) return
    this.#turns = true
    setImmediate(() => this.#turn())
  }

  #turn(): void {
    this.#turns = false
    this.#readings = 0
    let left = MAX_READINGS
    for (const socket of this.#waiting) {
      left -= 1
      if (left < 0) break
      this.#waiting.delete(socket)
      socket.resume()
    }
    if (this.#waiting.size > 0) this.#nextTurn()
  }

  #forget({ socket, look }: LingeringConnection): void {
    clearInterval(look)
    this.#open.delete(socket)
    this.#waiting.delete(socket)
  }

  #endOne(): void {
    const oldest = new Map<string, { socket: Socket; count: number }>()
    for (const { socket, address } of this.#open.values()) {
      const known = oldest.get(address)
      if (known) known.count += 1
      else oldest.set(address, { socket, count: 1 })
    }
    const [first] = [...oldest.values()].sort((a, b) => b.count - a.count)
    if (!first) return
    // Its `close` comes later than the newcomer.
    this.#open.delete(first.socket)
    first.socket.destroy()
  }
}

/** The function of a connection by which it lingers once its own side has ended. */
export const LINGER = Symbol('linger')

export interface LingerableConnection {
  /** Drops what still comes, from now on, and lets the connection linger when it ends. */
  [LINGER]?: () => void
}

/** Lets a connection without TLS linger if it is asked to. */
export function makeLingerable(socket: Socket & LingerableConnection, lingering: LingeringConnections): void {
  socket[LINGER] = () => {
    socket.destroySoon = () => lingering.add(socket, socket.remoteAddress ?? '')
  }
}

/** Lets the connection of a request that is answered early linger when the answer closes it. */
export const lingerAtEnd = (connection: Duplex & LingerableConnection): void => connection[LINGER]?.()
