import type { Socket } from 'node:net'
import { Duplex } from 'node:stream'
import type { ClientFlight } from './client-flight.ts'
import { Sender, type Turns, type Work } from './turns.ts'

/** What is handed to TLS at once: at first, and at least, and at most. Bytes. */
const FIRST_PIECE = 4_096
const LEAST_PIECE = 1_024
const LARGEST_PIECE = 65_536
/** A piece that takes longer is halved, one that takes a quarter of it may double. ms. */
const PIECE_MS = 2

/**
 * A peer's bytes on their way to TLS or HTTP: as they come, while that costs little; else in pieces that share
 * the loop with everybody else (docs/threats.md#a1, #a3). A client's go through a {@link ClientFlight} until
 * TLS stands. It holds what the socket has read at once, and reads no more meanwhile.
 */
export class Inbound extends Duplex implements Work {
  readonly #socket: Socket
  readonly #turns: Turns
  #flight: ClientFlight | null
  #sender: Sender
  /** Bytes that were not handed on yet. */
  #held: Buffer | null = null
  /** True once the client has ended its side: nothing comes behind what is held. */
  #ended = false
  #piece = FIRST_PIECE
  /** True while this stands in line for a turn. */
  #waits = false
  /** True while TLS takes what comes. */
  #wanted = false

  /** `flight`, for a client: what it passes until TLS stands. `sender`: who is charged until then, or always. */
  constructor(socket: Socket, turns: Turns, flight: ClientFlight | null, sender: Sender) {
    // Whoever ends its side may still read, as on the socket itself.
    super({ allowHalfOpen: true })
    this.#socket = socket
    this.#turns = turns
    this.#flight = flight
    this.#sender = sender
    socket.on('data', (bytes: Buffer) => this.#take(bytes))
    socket.on('end', () => this.#end())
    socket.on('error', (error) => this.destroy(error))
    socket.on('close', () => this.destroy())
  }

  get sender(): Sender {
    return this.#sender
  }

  get isHandshake(): boolean {
    return this.#flight !== null
  }

  /** TLS stands: from here on the connection is charged itself, and its bytes are not looked at. */
  established(): void {
    this.#flight = null
    this.#sender = new Sender()
  }

  turn(): boolean {
    this.#waits = false
    const held = this.#held
    if (held === null || this.destroyed) return false
    const piece = held.length > this.#piece ? held.subarray(0, this.#piece) : held
    this.#held = piece === held ? null : held.subarray(piece.length)
    const from = performance.now()
    this.#hand(piece)
    this.#fit(performance.now() - from)
    this.#next()
    this.#waits = this.#held !== null && this.#wanted && !this.destroyed
    return this.#waits
  }

  override _read(): void {
    this.#wanted = true
    if (this.#held === null) this.#next()
    else this.#offer()
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    this.#socket.write(chunk, done)
  }

  override _final(done: () => void): void {
    this.#socket.end(done)
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#held = null
    // Not before the socket: what has been read by then is still on its way to its reader.
    if (this.#socket.closed) done(error)
    else this.#socket.once('close', () => done(error)).destroy()
  }

  #take(bytes: Buffer): void {
    this.#held = this.#held === null ? bytes : Buffer.concat([this.#held, bytes])
    if (this.#wanted) this.#offer()
    if (this.#held !== null) this.#socket.pause()
  }

  /** A socket that is paused says all the same that it has ended. */
  #end(): void {
    this.#ended = true
    this.#next()
  }

  /** Goes on to what is behind what was held. */
  #next(): void {
    if (this.#held !== null) return
    if (this.#ended) this.push(null)
    else this.#socket.resume()
  }

  #offer(): void {
    if (this.#waits) return
    this.#waits = true
    this.#turns.offer(this)
  }

  #hand(piece: Buffer): void {
    try {
      const bytes = this.#flight === null || this.#flight.done ? piece : this.#flight.add(piece)
      if (bytes.length > 0) this.#wanted = this.push(bytes)
    } catch (error) {
      this.destroy(error instanceof Error ? error : new Error('the handshake failed', { cause: error }))
    }
  }

  #fit(ms: number): void {
    if (ms > PIECE_MS) this.#piece = Math.max(LEAST_PIECE, this.#piece / 2)
    else if (ms < PIECE_MS / 4) this.#piece = Math.min(LARGEST_PIECE, this.#piece * 2)
  }
}
