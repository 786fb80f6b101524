import type { Socket } from 'node:net'
import { Duplex } from 'node:stream'
import type { TLSSocket } from 'node:tls'
import type { ClientFlight } from './client-flight.ts'
import { HandshakeShare, type MeasureLoad } from './handshake-share.ts'
import { type SocketTap, tapSocket } from './socket-tap.ts'

/** The time of one turn of the loop that is given away before the next piece has to wait for another. ms. */
const TURN_MS = 4
/** The cost of accepting a connection, most of it before any code of ours runs. ms. */
const ACCEPT_MS = 0.05
/** Connections that are accepted before handshakes go on, however long it takes: the loop may not be running. */
const MIN_ACCEPTS = 8
/** A sender that has cost more than this of late is served after all others. ms. */
const LIGHT_MS = 10
/** The part of all time that a sender may take for good and still count as light. */
const LIGHT_SHARE = 0.02
const NOTHING = Buffer.alloc(0)
/** The bytes handed to TLS at once: at first, and at least, and at most. */
const FIRST_PIECE = 4_096
const MIN_PIECE = 1_024
const MAX_PIECE = 65_536
/** A piece that takes longer is halved, one that takes a quarter of it may double. ms. */
const PIECE_MS = 2

/** The recent cost of a sender: an address while it shakes hands, a connection afterwards. */
export class SenderCost {
  #cost = 0
  #at = 0

  /** True while it has cost little. `now`: ms of the clock that it is charged by. */
  isLight(now: number): boolean {
    this.#leak(now)
    return this.#cost < LIGHT_MS
  }

  charge(ms: number, now: number): void {
    this.#leak(now)
    this.#cost += ms
  }

  #leak(now: number): void {
    this.#cost = Math.max(0, this.#cost - (now - this.#at) * LIGHT_SHARE)
    this.#at = now
  }
}

/** The filter of a client's bytes until TLS stands. */
interface ClientHandshake {
  readonly flight: ClientFlight
  /** Gets the first bytes. Returns false if they are none of TLS: then nothing more is handed on. */
  readonly begin: (first: Buffer) => boolean
  /** Called when bytes come and none are left; when all are done. */
  readonly heard: () => void
  readonly answered: () => void
  /** Gets the connection itself, when this stream has ended and the client may still send. */
  readonly linger: (socket: Socket) => void
}

export interface LoopWork {
  readonly sender: SenderCost
  /** True until the connection has shaken hands. */
  readonly isHandshake: boolean
  turn(): boolean
}

/**
 * Shares the event loop among all who send (docs/threats.md#a1). While there is time everything is done at
 * once. Then first come those that have cost little, then the others one by one. Handshakes get the time that
 * everything else leaves, and a tenth at least. A work is in the queue once at most: it sees to that by
 * itself.
 */
export class LoopScheduler {
  readonly #now: () => number
  readonly #share: HandshakeShare
  readonly #data = new LightFirstQueue<LoopWork>()
  readonly #handshakes = new LightFirstQueue<LoopWork>()
  /** Given away in this turn of the loop. ms. */
  #spent = 0
  #drains = false
  /** True if a connection was accepted in this turn. */
  #accepts = false
  /** Connections that were accepted since the last piece of a handshake. */
  #acceptsSince = 0
  /** The end of the last piece of a handshake. ms. */
  #shookAt = Number.NEGATIVE_INFINITY
  /** True while a timer runs for handshakes that must wait. */
  #timed = false

  /** `now`: ms of a clock that only goes forward. */
  constructor(now = () => performance.now(), load?: MeasureLoad) {
    this.#now = now
    this.#share = new HandshakeShare(now(), load)
  }

  /** Does a work's next pieces now if there is time, or later. */
  offer(work: LoopWork): void {
    const now = this.#now()
    const isDone = this.#spent < TURN_MS && this.#mayRun(work, now) && !this.#do(work, now)
    // Even then: the next turn begins with all of its time.
    if (isDone) this.#later()
    else this.#wait(work, this.#now())
  }

  /** Notes that a connection was accepted, which is a part of its handshake's cost. */
  accepted(): void {
    this.#accepts = true
    this.#acceptsSince += 1
    this.#share.charge(ACCEPT_MS)
    if (this.#handshakes.size > 0) this.#later()
  }

  #mayRun(work: LoopWork, now: number): boolean {
    if (this.#data.size > 0) return false
    if (!work.isHandshake) return true
    return !this.#accepts && this.#handshakes.size === 0 && this.#share.waitMs(now, false) === 0
  }

  /** Does one piece of a work and charges it. Returns true if another is ready. */
  #do(work: LoopWork, from: number): boolean {
    const { isHandshake } = work
    const more = work.turn()
    const to = this.#now()
    const ms = to - from
    this.#spent += ms
    work.sender.charge(ms, to)
    if (isHandshake) {
      this.#share.charge(ms)
      this.#shookAt = to
      this.#acceptsSince = 0
    }
    return more
  }

  #wait(work: LoopWork, now: number): void {
    const queue = work.isHandshake ? this.#handshakes : this.#data
    queue.add(work, now)
    this.#later()
  }

  #later(): void {
    if (this.#drains) return
    this.#drains = true
    setImmediate(() => this.#drain())
  }

  /**
   * One turn: the light ones first, then of the handshakes and of the heavy ones at least one each. A turn
   * accepts one connection: while they come, every other time is theirs, and handshakes stand back.
   */
  #drain(): void {
    this.#drains = false
    this.#spent = 0
    const isEnough = this.#acceptsSince >= MIN_ACCEPTS && this.#now() - this.#shookAt >= TURN_MS
    const shakes = !this.#accepts || isEnough
    this.#accepts = false
    while (this.#spent < TURN_MS && this.#onward(this.#data.takeLight(this.#now())));
    if (shakes) this.#handshake()
    this.#onward(this.#data.takeHeavy())
    while (shakes && this.#spent < TURN_MS && this.#handshake());
    while (this.#spent < TURN_MS && this.#onward(this.#data.take(this.#now())));
    this.#spent = 0
    if (this.#data.size > 0 || (!shakes && this.#handshakes.size > 0)) this.#later()
    else if (this.#handshakes.size > 0) this.#laterHandshakes()
  }

  #handshake(): boolean {
    if (this.#handshakes.size === 0) return false
    const now = this.#now()
    const wait = this.#share.waitMs(now, this.#data.size > 0)
    return wait === 0 && this.#onward(this.#handshakes.takeFairly(now))
  }

  /** Uses a timer if they must wait: the loop would turn for nothing, and count as busy. */
  #laterHandshakes(): void {
    const wait = this.#share.waitMs(this.#now(), false)
    if (wait === 0) this.#later()
    if (wait === 0 || this.#timed) return
    this.#timed = true
    setTimeout(() => {
      this.#timed = false
      this.#later()
    }, wait)
  }

  /** Does one piece of a work, which then goes to the end. Returns false if there is none. */
  #onward(work: LoopWork | undefined): boolean {
    if (work && this.#do(work, this.#now())) this.#wait(work, this.#now())
    return work !== undefined
  }
}

/**
 * A peer's bytes on their way to TLS or HTTP: as they come, while that costs little; else in pieces that
 * share the loop with everybody else (docs/threats.md#a1, #a3). A client's go through a {@link ClientFlight}
 * until TLS stands.
 */
export class InboundStream extends Duplex implements LoopWork {
  readonly #socket: Socket
  readonly #turns: LoopScheduler
  #client: ClientHandshake | null
  /** True until TLS has got its first bytes. */
  #isFirst: boolean
  readonly #linger: ClientHandshake['linger'] | null
  /** True once nothing that still comes is wanted. */
  #lingers = false
  #sender: SenderCost
  #held: Buffer | null = null
  /** True once the client has ended its side: nothing comes after the held bytes. */
  #ended = false
  #piece = FIRST_PIECE
  /** True while this stands in line for a turn, or has it. */
  #waits = false
  /** True while TLS takes bytes. */
  #wanted = false
  /** The way to TLS that lies on the socket. Null: it lies on this stream, or there is none. */
  #tap: SocketTap | null = null
  /** True while the tap runs. */
  #reads = false

  /** `sender`: charged for a client until TLS stands. */
  constructor(
    socket: Socket,
    turns: LoopScheduler,
    sender: SenderCost,
    client: ClientHandshake | null = null,
  ) {
    // A peer that ends its side may still read, as on the socket itself.
    super({ allowHalfOpen: true })
    this.#socket = socket
    this.#turns = turns
    this.#sender = sender
    this.#client = client
    this.#isFirst = client !== null
    this.#linger = client?.linger ?? null
    socket.on('data', (bytes: Buffer) => this.#take(bytes))
    // Also while it is paused.
    socket.on('end', () => {
      this.#ended = true
      this.#next()
    })
    if (client) socket.resume()
    socket.on('error', (error) => this.destroy(error))
    socket.on('close', () => {
      // Bytes from before the end have still to be taken.
      if (this.#ended && !this.readableEnded) this.once('end', () => this.destroy())
      else this.destroy()
    })
  }

  get sender(): SenderCost {
    return this.#sender
  }

  get isHandshake(): boolean {
    return this.#client !== null
  }

  /** TLS stands: from here on the connection is charged itself, and its bytes are not looked at. */
  established(): void {
    this.#client = null
    this.#sender = new SenderCost()
  }

  /** Hands on the first bytes, in their turn. Until then they are read only. */
  proceed(): void {
    this.#offer()
  }

  /** Hands all bytes from now on to TLS that lies on the socket itself: it has been made just now. */
  giveTo(tls: TLSSocket): void {
    // Else TLS reads by itself what the socket has read already.
    this.#socket.pause()
    while (this.#socket.read() !== null);
    this.#wanted = true
    const want = (more: boolean): void => {
      this.#wanted = more
      if (more) this._read()
      else this.#stop()
    }
    this.#tap = tapSocket(this.#socket, tls, (bytes) => this.#take(bytes), want)
  }

  /** Reads nothing more: what still comes is dropped when this stream has ended. */
  linger(): void {
    this.#lingers = true
    this.#held = null
    this.#socket.pause()
  }

  turn(): boolean {
    const held = this.#held ?? NOTHING
    if (this.#isFirst) return this.#first(held)
    const piece = held.length > this.#piece ? held.subarray(0, this.#piece) : held
    this.#held = piece === held ? null : held.subarray(piece.length)
    // Still in line meanwhile: its reader may ask for more before it has returned.
    const from = performance.now()
    this.#hand(piece)
    const ms = performance.now() - from
    if (ms > PIECE_MS) this.#piece = Math.max(MIN_PIECE, this.#piece / 2)
    else if (ms < PIECE_MS / 4) this.#piece = Math.min(MAX_PIECE, this.#piece * 2)
    this.#next()
    this.#waits = this.#held !== null && this.#wanted && !this.destroyed
    if (this.#held === null) this.#client?.answered()
    return this.#waits
  }

  #first(held: Buffer): boolean {
    // Nobody has answered a client that has ended by now: none is there to be answered.
    if (this.#ended) this.destroy()
    this.#isFirst = false
    this.#waits = !this.destroyed && this.#client?.begin(held) === true
    if (!this.#waits) {
      this.#held = null
      this.#client?.answered()
    }
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

  /** Chunks written together go out together. */
  override _writev(
    chunks: readonly { readonly chunk: Buffer }[],
    done: (error?: Error | null) => void,
  ): void {
    this.#socket.cork()
    for (const { chunk } of chunks.slice(0, -1)) this.#socket.write(chunk)
    this.#socket.write(chunks.at(-1)?.chunk ?? NOTHING, done)
    this.#socket.uncork()
  }

  override _final(done: () => void): void {
    if (this.#lingers) done()
    else this.#socket.end(done)
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#held = null
    const lingers = this.#lingers && this.writableFinished && !this.#socket.destroyed
    if (lingers) this.#linger?.(this.#socket)
    // Not before the socket: bytes read by then are still on their way to their reader.
    if (lingers || this.#socket.closed) done(error)
    else this.#socket.once('close', () => done(error)).destroy()
  }

  #take(bytes: Buffer): void {
    if (this.#lingers) return
    if (this.#held === null) this.#client?.heard()
    this.#held = this.#held === null ? bytes : Buffer.concat([this.#held, bytes])
    if (this.#wanted) this.#offer()
    // An end that follows the first bytes makes them void.
    if (this.#isFirst ? this.#held.length >= FIRST_PIECE : this.#held !== null) this.#stop()
  }

  #stop(): void {
    if (!this.#tap) this.#socket.pause()
    else if (this.#reads && !this.#socket.destroyed) this.#tap.stop()
    this.#reads = false
  }

  #start(): void {
    if (!this.#tap) return void this.#socket.resume()
    if (this.#reads || !this.#wanted || this.#socket.destroyed) return
    this.#reads = this.#tap.start() === 0
    if (!this.#reads) this.destroy()
  }

  #next(): void {
    if (this.#ended && this.#isFirst) return void this.destroy()
    if (this.#held !== null || this.#lingers) return
    if (this.#ended && this.#tap) this.destroy()
    else if (this.#ended) this.push(null)
    else this.#start()
  }

  #offer(): void {
    if (this.#waits) return
    this.#waits = true
    this.#turns.offer(this)
  }

  #push(bytes: Buffer): boolean {
    this.#wanted = false
    return this.push(bytes)
  }

  #hand(piece: Buffer): void {
    if (this.destroyed || this.#lingers) return
    try {
      const flight = this.#client?.flight
      const bytes = !flight || flight.done ? piece : flight.add(piece)
      if (bytes.length === 0) return
      if (!this.#tap) this.#wanted = this.#push(bytes)
      else if (!this.#socket.destroyed) this.#tap.give(bytes)
    } catch (error) {
      this.destroy(error instanceof Error ? error : new Error('the handshake failed', { cause: error }))
    }
  }
}

/** One of every so many works is of a sender that has cost much, if one waits. */
const HEAVY_TURN = 4

interface ChargedWork {
  /** `isLight`: true while the sender has cost little. `now`: ms of the clock that it is charged by. */
  readonly sender: { isLight(now: number): boolean }
}

/** Works in line, each once at most: those whose senders have cost little come first. */
export class LightFirstQueue<Work extends ChargedWork> {
  readonly #light = new Set<Work>()
  readonly #heavy = new Set<Work>()
  #taken = 0

  get size(): number {
    return this.#light.size + this.#heavy.size
  }

  add(work: Work, now: number): void {
    const line = work.sender.isLight(now) ? this.#light : this.#heavy
    line.add(work)
  }

  delete(work: Work): void {
    if (!this.#light.delete(work)) this.#heavy.delete(work)
  }

  /** Takes the next one. However many light ones come, every fourth is a heavy one. */
  takeFairly(now: number): Work | undefined {
    this.#taken += 1
    return this.#taken % HEAVY_TURN === 0 ? (this.takeHeavy() ?? this.takeLight(now)) : this.take(now)
  }

  take(now: number): Work | undefined {
    return this.takeLight(now) ?? this.takeHeavy()
  }

  takeLight(now: number): Work | undefined {
    let work = dequeue(this.#light)
    for (; work && !work.sender.isLight(now); work = dequeue(this.#light)) this.#heavy.add(work)
    return work
  }

  takeHeavy(): Work | undefined {
    return dequeue(this.#heavy)
  }
}

function dequeue<Work>(line: Set<Work>): Work | undefined {
  const [work] = line
  if (work) line.delete(work)
  return work
}
