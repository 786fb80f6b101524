import { ByteCollector } from '../../../plugins/collect.ts'
import type { MemoryReservation } from '../../../plugins/plugin.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import type { McpUpstreamLimits } from '../options.ts'
import { McpUpstreamError, mcpUpstreamFailure } from './errors.ts'
import { drainBody, type McpResponseBody } from './exchange.ts'
import { kindOfMessage, type UpstreamMessage } from './message.ts'

export type SizeLimits = Pick<McpUpstreamLimits, 'maxMessageBytes' | 'maxAnswerBytes'>

const LF = 0x0a
const CR = 0x0d
const COLON = 0x3a
const SPACE = 0x20
const DATA = Buffer.from('data')
const EVENT = Buffer.from('event')
const ID = Buffer.from('id')
const RETRY = Buffer.from('retry')
const MESSAGE = Buffer.from('message')
const BOM = Buffer.from('\ufeff')
const NEWLINE = Buffer.from('\n')

/** The first bytes of the fields that are read. */
const READ_FIELDS = [DATA, EVENT, ID, RETRY].map(([first]) => first)
/** The id of an event that can be sent back in a header as it is. */
const SENDABLE_ID = /^[\x21-\x7e](?:[\x20-\x7e]{0,1022}[\x21-\x7e])?$/

/**
 * Reads an event stream as bytes (WHATWG HTML, server-sent events). A line and an event may come in pieces of
 * any size: neither costs more than its length (docs/threats.md#a3).
 */
export class EventReader {
  readonly #maxAnswerBytes: number
  readonly #held: MemoryReservation | null
  /** The bytes that are counted: the most that was held at once. */
  #counted = 0
  #total = 0
  readonly #line: ByteCollector
  readonly #data: ByteCollector
  /** True: the line whose end has not come is a comment, or of a field that means nothing here. */
  #passing = false
  /** True: the last line ended with a carriage return, and a line feed after it belongs to it. */
  #returned = false
  #isFirst = true
  #isMessage = true
  /** True: the event has a line of data, which may be empty. */
  #hasData = false
  #id: string | null = null
  #lastId: string | null = null
  #retryMs: number | null = null

  constructor({ maxMessageBytes, maxAnswerBytes }: SizeLimits, held: MemoryReservation | null) {
    this.#maxAnswerBytes = maxAnswerBytes
    this.#held = held
    // The line has its field's name in addition to the data.
    this.#line = new ByteCollector(maxMessageBytes + BOM.length + 'data: '.length)
    this.#data = new ByteCollector(maxMessageBytes)
  }

  /** The id by which the rest can be asked for: of the last whole event, or one before it. Null: there is none. */
  get lastEventId(): string | null {
    return this.#lastId
  }

  /** The time that the server wants between the end of a stream and the next question. ms; null: not said. */
  get retryMs(): number | null {
    return this.#retryMs
  }

  /** Begins with another stream, which goes on where this one ended. Its bytes count as of this one. */
  restart(): void {
    this.#line.clear()
    this.#data.clear()
    this.#passing = false
    this.#returned = false
    this.#isFirst = true
    this.#isMessage = true
    this.#hasData = false
    this.#id = this.#lastId
  }

  /**
   * Counts the bytes that come next, as soon as they fit; undefined: they are counted. Throws McpUpstreamError
   * `too_large` past the limit, and refuses with `overloaded`.
   */
  reserve({ length }: Buffer): Promise<void> | undefined {
    this.#total += length
    if (this.#total > this.#maxAnswerBytes)
      throw new McpUpstreamError('too_large', 'an event stream is too long')
    // Three times: as it comes, as it is passed on, and as it is written to a caller that may not read.
    const more = 3 * (this.#line.length + this.#data.length + length) - this.#counted
    if (more <= 0) return undefined
    this.#counted += more
    return this.#held?.reserveAnswerInTurn(more)
  }

  /**
   * Yields the data of the events that end in `chunk`. Passes over events without data and those of another
   * type than `message`. Throws McpUpstreamError `too_large` past the limits.
   */
  *read(chunk: Buffer): Generator<Buffer> {
    if (chunk.length === 0) return
    let from = this.#returned && chunk[0] === LF ? 1 : 0
    let lf = chunk.indexOf(LF, from)
    let cr = chunk.indexOf(CR, from)
    while (lf >= 0 || cr >= 0) {
      const end = cr < 0 || (lf >= 0 && lf < cr) ? lf : cr
      const event = this.#lineEnds(chunk.subarray(from, end))
      if (event) yield event
      from = end === cr && chunk[end + 1] === LF ? end + 2 : end + 1
      // Looked for again only if it was passed: else each line would cost the whole chunk.
      if (lf >= 0 && lf < from) lf = chunk.indexOf(LF, from)
      if (cr >= 0 && cr < from) cr = chunk.indexOf(CR, from)
    }
    if (from < chunk.length) this.#lineGoesOn(chunk.subarray(from))
    this.#returned = chunk[chunk.length - 1] === CR
  }

  #lineGoesOn(piece: Buffer): void {
    if (this.#line.length === 0 && !this.#passing) {
      const mayBeMark = this.#isFirst && piece[0] === BOM[0]
      this.#passing = !mayBeMark && !READ_FIELDS.includes(piece[0])
      if (this.#passing) this.#isFirst = false
    }
    if (!this.#passing) requireFits(this.#line.add(piece))
  }

  /** Returns the data of the event that the line ends, or null. */
  #lineEnds(rest: Buffer): Buffer | null {
    if (this.#passing) {
      this.#passing = false
      return null
    }
    const line = this.#begun(this.#joined(rest))
    if (line.length === 0) return this.#eventEnds()
    const data = fieldOf(line, DATA)
    if (data) this.#add(data)
    const type = fieldOf(line, EVENT)
    if (type) this.#isMessage = type.length === 0 || type.equals(MESSAGE)
    if (!data && !type) this.#place(line)
    return null
  }

  #place(line: Buffer): void {
    const id = fieldOf(line, ID)?.toString('latin1')
    if (id !== undefined) this.#id = SENDABLE_ID.test(id) ? id : null
    const retry = fieldOf(line, RETRY)?.toString('latin1') ?? ''
    if (/^\d{1,15}$/.test(retry)) this.#retryMs = Number(retry)
  }

  #joined(rest: Buffer): Buffer {
    if (this.#line.length === 0) return rest
    requireFits(this.#line.add(rest))
    const line = this.#line.bytes()
    this.#line.clear()
    return line
  }

  /** Returns the line without the byte order mark that the first one may begin with. */
  #begun(line: Buffer): Buffer {
    const marked = this.#isFirst && line.subarray(0, BOM.length).equals(BOM)
    this.#isFirst = false
    return marked ? line.subarray(BOM.length) : line
  }

  #add(data: Buffer): void {
    if (this.#hasData) requireFits(this.#data.add(NEWLINE))
    this.#hasData = true
    requireFits(this.#data.add(data))
  }

  #eventEnds(): Buffer | null {
    const event = this.#isMessage && this.#data.length > 0 ? this.#data.bytes() : null
    this.#data.clear()
    this.#hasData = false
    this.#isMessage = true
    this.#lastId = this.#id
    return event
  }
}

/** Returns the value of a line if it is of the field, or null. */
function fieldOf(line: Buffer, field: Buffer): Buffer | null {
  if (line[0] !== field[0] || !line.subarray(0, field.length).equals(field)) return null
  if (line.length === field.length) return line.subarray(line.length)
  if (line[field.length] !== COLON) return null
  const start = field.length + 1
  return line.subarray(line[start] === SPACE ? start + 1 : start)
}

function requireFits(within: boolean): void {
  if (!within) throw new McpUpstreamError('too_large', 'an event is too large')
}

const NONE: Iterator<Buffer> = [].values()

export interface StreamPlace {
  readonly lastEventId: string
  /** The time to wait that the server has stated. ms; null: none. */
  readonly retryMs: number | null
  /** True: an event has come since the stream was asked for last. */
  readonly progressed: boolean
}

export interface StreamResumption {
  /** Waits, and asks for what follows. Null: streams of this era are not resumed. */
  readonly resume: ((from: StreamPlace) => Promise<McpResponseBody>) | null
  /** Called once, when nothing more can come. False: the server may still be at work on the request. */
  readonly settled: (answered: boolean) => void
}

/** Reads the data of an event; null: it is passed over. Throws what ends the answer. */
export type EventJudge = (data: Buffer) => UpstreamMessage | null | Promise<UpstreamMessage | null>

/** The messages of an answer as they come, and last the response. */
export interface AnswerMessages extends AsyncIterable<UpstreamMessage> {
  /** Returns the next message; null after the response. */
  readonly next: () => UpstreamMessage | null | Promise<UpstreamMessage | null>
  readonly close: () => void
}

/** The events of one answer that are passed over; and of them the ones in one turn of the loop. */
const MAX_PASSED_OVER = 10_000
const PASSED_OVER_AT_ONCE = 64

/**
 * The messages of an event stream, and last the response, with which it ends. Throws McpUpstreamError, or the
 * reason why nobody waits any more. Reads nothing ahead beyond one reading of the connection. A stream that
 * ends before its response, but has said how it goes on, is resumed.
 */
export class MessageStream implements AnswerMessages {
  #body: McpResponseBody
  readonly #events: EventReader
  readonly #judged: EventJudge
  readonly #rest: StreamResumption | null
  #come: Iterator<Buffer> = NONE
  #answered = false
  /** True: nothing more can come of the present body. */
  #isOver = false
  #settled = false
  #resumedAt: string | null = null
  #passedOver = 0

  constructor(
    body: McpResponseBody,
    events: EventReader,
    judged: EventJudge,
    rest: StreamResumption | null = null,
  ) {
    this.#body = body
    this.#events = events
    this.#judged = judged
    this.#rest = rest
    body.onceOver(this.#bodyIsOver)
  }

  get answered(): boolean {
    return this.#answered
  }

  next(): UpstreamMessage | null | Promise<UpstreamMessage | null> {
    if (this.#answered) return null
    const { value: data, done } = this.#come.next()
    if (done) return this.#read()
    const message = this.#judged(data)
    return message instanceof Promise || message === null ? this.#read(message) : this.#passed(message)
  }

  close(): void {
    if (this.#answered) return
    this.#body.destroy()
    this.#settle(this.#body.complete && this.#events.lastEventId === null)
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<UpstreamMessage> {
    try {
      for (let next = await this.next(); next !== null; next = await this.next()) yield next
    } finally {
      this.close()
    }
  }

  /** Reads on until there is a message. `judged`: what has come of the event that was read last. */
  async #read(judged?: Promise<UpstreamMessage | null> | null): Promise<UpstreamMessage> {
    for (let message = judged; ; ) {
      const read = await message
      if (read) return this.#passed(read)
      if (read === null) await this.#passOver()
      const { value: data, done } = this.#come.next()
      message = done ? undefined : Promise.resolve(this.#judged(data))
      if (!done) continue
      const chunk = await this.#chunk()
      if (chunk === null) continue
      const later = this.#events.reserve(chunk)
      if (later) await later
      this.#come = this.#events.read(chunk)
    }
  }

  /** Lets others have their turn: an event costs its sender less than it costs us. */
  async #passOver(): Promise<void> {
    this.#passedOver += 1
    if (this.#passedOver > MAX_PASSED_OVER)
      throw mcpUpstreamFailure(`it sent more than ${MAX_PASSED_OVER} events that belong to no call`)
    if (this.#passedOver % PASSED_OVER_AT_ONCE === 0) await eventLoopTurn()
  }

  /** Returns the bytes that come next; null once the stream goes on as another one. */
  async #chunk(): Promise<Buffer | null> {
    let fault: unknown = null
    try {
      const chunk = await this.#body.read()
      if (chunk !== null) return chunk
    } catch (error) {
      fault = error
    }
    await this.#resume(fault)
    return null
  }

  /** Goes on with a stream that has ended, or broken by this fault. */
  async #resume(fault: unknown): Promise<void> {
    const { lastEventId, retryMs } = this.#events
    const broke = fault !== null && !(fault instanceof McpUpstreamError && fault.kind === 'failed')
    if (broke || !this.#rest?.resume || lastEventId === null || this.#settled) {
      this.#settle(this.#body.complete)
      throw fault ?? endedEarly()
    }
    const progressed = lastEventId !== this.#resumedAt
    this.#resumedAt = lastEventId
    try {
      const body = await this.#rest.resume({ lastEventId, retryMs, progressed })
      this.#body = body
      this.#isOver = false
      this.#events.restart()
      body.onceOver(this.#bodyIsOver)
      if (this.#settled) body.destroy()
    } catch (error) {
      this.#settle(false)
      throw error
    }
  }

  readonly #bodyIsOver = (): void => {
    this.#isOver = true
    if (this.#answered) this.#settle(true)
  }

  #settle(answered: boolean): void {
    if (this.#settled) return
    this.#settled = true
    this.#rest?.settled(answered)
  }

  #passed(message: UpstreamMessage): UpstreamMessage {
    this.#answered = kindOfMessage(message) === 'response'
    if (!this.#answered) return message
    // The rest after the response is read, so that the connection can serve again.
    drainBody(this.#body)
    if (this.#isOver) this.#settle(true)
    return message
  }
}

/** The server took the request, and may have done the work. */
const endedEarly = (): McpUpstreamError =>
  mcpUpstreamFailure('the event stream ended before the response', { outcomeUnknown: true })
