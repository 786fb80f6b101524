import type { IncomingMessage, ServerResponse } from 'node:http'
import { ByteCollector } from '../../../plugins/collect.ts'
import type { HangupSignal } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { BYTES_AT_ONCE } from '../../../plugins/turns.ts'
import { brokenOff, leaveUnread, requireComingBody } from '../framing.ts'
import type { MemoryAccount } from '../open-calls.ts'

export interface BodyReading {
  readonly req: IncomingMessage
  readonly res: ServerResponse
  readonly hangup: HangupSignal
  readonly held: MemoryAccount
}

/** The room that a long body gets first if it does not say how long it is. Bytes. */
const UNDECLARED_ROOM = 8 * 1_048_576
/** A sender that has sent less in such a time keeps room only for what has come. */
const SLOW = { ms: 5_000, bytes: BYTES_AT_ONCE }

interface BodyBounds {
  readonly limit: number
  readonly counted: boolean
  readonly declared: number | undefined
}

/**
 * A body that has not come yet, or is long. It waits unread until there is room for it: its sender is slowed
 * down, and its time-out does not go on meanwhile.
 */
export class IncomingBody {
  readonly #reading: BodyReading
  readonly #bounds: BodyBounds
  readonly #body: ByteCollector
  readonly #whole = Promise.withResolvers<Buffer>()
  /** The bytes that it has room for. */
  #room: number
  /** The length at the last look. */
  #seen = 0
  #isSlow = false

  constructor(reading: BodyReading, bounds: BodyBounds) {
    this.#reading = reading
    this.#bounds = bounds
    const { counted, declared = 0 } = bounds
    const isGranted = counted && declared > BYTES_AT_ONCE
    this.#body = new ByteCollector(bounds.limit, bounds.declared, isGranted)
    this.#room = counted ? 0 : bounds.limit
  }

  async read(): Promise<Buffer> {
    const { req, res } = this.#reading
    const { counted, declared = 0 } = this.#bounds
    if (counted && declared > BYTES_AT_ONCE) {
      const later = this.#widen(declared)
      if (later) await this.#unread(later)
    }
    // The client waits for this before it sends: only now is the body wanted.
    if (req.headers.expect !== undefined) res.writeContinue()
    req.on('data', (chunk: Buffer) => this.#add(chunk))
    req.on('end', () => this.#end())
    req.on('error', (cause) => this.#whole.reject(cause instanceof Refusal ? cause : brokenOff(cause)))
    req.on('close', () => {
      if (!req.complete) this.#whole.reject(brokenOff())
    })
    const look = setInterval(() => this.#look(), SLOW.ms)
    try {
      return await this.#whole.promise
    } finally {
      clearInterval(look)
      // The request may outlive its call.
      this.#body.close()
    }
  }

  #add(chunk: Buffer): void {
    if (this.#body.closed) return
    const length = this.#body.length + chunk.length
    const later = length > this.#room && length <= this.#bounds.limit ? this.#widen(this.#next(length)) : null
    if (later) void this.#keepLater(chunk, later)
    else this.#keep(chunk)
  }

  async #keepLater(chunk: Buffer, later: Promise<void>): Promise<void> {
    this.#reading.req.pause()
    try {
      await this.#unread(later)
      this.#keep(chunk)
      this.#reading.req.resume()
    } catch (error) {
      this.#refuse(error)
    }
  }

  #keep(chunk: Buffer): void {
    if (!this.#body.add(chunk)) this.#refuse(tooLarge(this.#bounds.limit))
  }

  /** Returns the room that a body of this length gets: what has come, while it is short or slow; else all. */
  #next(length: number): number {
    const { declared, limit } = this.#bounds
    if (this.#isSlow || length <= BYTES_AT_ONCE) return length
    return declared ?? (length <= UNDECLARED_ROOM ? Math.min(UNDECLARED_ROOM, limit) : limit)
  }

  #widen(room: number): Promise<void> | undefined {
    const more = room - this.#room
    this.#room = room
    return this.#reading.held.reserveInTurn(more, true)
  }

  /** Waits for room, and reads nothing meanwhile. */
  async #unread(later: Promise<void>): Promise<void> {
    const { req } = this.#reading
    const goOn = leaveUnread(req.socket)
    try {
      await later
    } finally {
      goOn()
    }
    requireComingBody(req)
  }

  /** A sender may be slow, but it keeps no room from others that it does not use. */
  #look(): void {
    const { length } = this.#body
    const isSlow = length - this.#seen < SLOW.bytes
    this.#seen = length
    const unused = this.#room - length
    this.#isSlow = isSlow && !this.#reading.req.isPaused()
    if (!this.#isSlow || !this.#bounds.counted || unused <= 0) return
    this.#room -= unused
    this.#reading.held.release(unused)
  }

  #end(): void {
    const { length } = this.#body
    if (this.#bounds.counted && this.#room > length) this.#reading.held.release(this.#room - length)
    this.#whole.resolve(length > BYTES_AT_ONCE ? this.#body.bytesInTurns() : this.#body.bytes())
  }

  /** Nothing of it is kept, and the rest is forgotten as it comes. */
  #refuse(error: unknown): void {
    this.#whole.reject(error)
    this.#body.close()
    this.#reading.held.release()
    this.#reading.req.resume()
  }
}

export const tooLarge = (limit: number): Refusal =>
  new Refusal('body_too_large', {
    message: `The body is larger than the ${limit} bytes this endpoint accepts.`,
  })
