import { connect as connectTcp, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import type { Job } from '../job.ts'
import { AnswerReader } from './answer-reader.ts'

/** One answer, and its times. */
export interface Answer {
  readonly status: number
  readonly bodyBytes: number
  /** Both on the clock of {@link nowUs}. */
  readonly sentUs: number
  readonly firstUs: number
}

export interface WireEvents {
  readonly answered: (wire: Wire, answer: Answer) => void
  /** The connection stands and nothing is under way on it. */
  readonly idle: (wire: Wire) => void
  /** It closed with a request under way, or could not be made. */
  readonly broke: (wire: Wire, error: Error | null) => void
}

/** Returns µs on a clock that only goes forward. */
export const nowUs = (): number => performance.now() * 1_000

/** Returns the request to send now. */
export type NextRequest = () => Buffer | string

/**
 * One connection of the load generator: a raw socket that sends what it is given and waits for one answer at
 * a time.
 */
export class Wire {
  readonly #job: Job
  readonly #next: NextRequest
  readonly #events: WireEvents
  #socket: Socket | null = null
  #sentUs = 0
  #firstUs = 0
  #isBusy = false

  constructor(job: Job, next: NextRequest, events: WireEvents) {
    this.#job = job
    this.#next = next
    this.#events = events
  }

  open(): void {
    const { port, tls } = this.#job
    // Where each request has its own connection, its time begins with the handshake.
    this.#sentUs = nowUs()
    const socket = tls
      ? connectTls({
          host: '127.0.0.1',
          port,
          servername: 'localhost',
          minVersion: 'TLSv1.3',
          ca: tls.ca,
          ...(tls.cert !== null && tls.key !== null && { cert: tls.cert, key: tls.key }),
        })
      : connectTcp({ host: '127.0.0.1', port })
    const reader = new AnswerReader({
      first: () => {
        this.#firstUs = nowUs()
      },
      whole: (status, bodyBytes) => {
        this.#isBusy = false
        this.#events.answered(this, { status, bodyBytes, sentUs: this.#sentUs, firstUs: this.#firstUs })
      },
    })
    this.#socket = socket
    socket.setNoDelay(true)
    socket.on('data', (piece: Buffer) => reader.feed(piece))
    socket.once(tls ? 'secureConnect' : 'connect', () => this.#events.idle(this))
    socket.once('error', (error) => this.#broke(socket, error))
    socket.once('close', () => this.#broke(socket, null))
  }

  send(): void {
    this.#isBusy = true
    const request = this.#next()
    if (!this.#job.reconnect) this.#sentUs = nowUs()
    this.#socket?.write(request)
  }

  reopen(): void {
    this.close()
    this.open()
  }

  close(): void {
    const socket = this.#socket
    this.#socket = null
    this.#isBusy = false
    socket?.destroy()
  }

  #broke(socket: Socket, error: Error | null): void {
    // Closed by us, or told already.
    if (this.#socket !== socket) return
    const wasBusy = this.#isBusy
    this.close()
    this.#events.broke(this, wasBusy ? (error ?? new Error('closed before the answer')) : error)
  }
}
