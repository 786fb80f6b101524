import { ByteCollector, peakReservation } from '../../../plugins/collect.ts'
import { CLOSE_BRACE, CLOSE_BRACKET, OPEN_BRACE, OPEN_BRACKET } from '../../../plugins/json-body/bytes.ts'
import type { MemoryReservation } from '../../../plugins/plugin.ts'
import type { AnswerNames } from './dialect.ts'
import { AnswerEventReader } from './event-reader.ts'
import type { MemberPicker } from './member-picker.ts'
import type { ProviderUsage, TokensUnknown } from './stated-usage.ts'
import {
  type AnswerReading,
  AnswerStatements,
  type DocumentListener,
  PARSED_WHOLE,
  parseOrNothing,
} from './statements.ts'

export interface AnswerTap {
  /** Takes a chunk after it was passed on. Never throws; keeps at most 256 KiB. */
  readonly observe: (chunk: Buffer) => void
  /**
   * Tells whether the answer is whole: its last event was observed, or its document has come to its end.
   * `ended`: the provider has ended it soundly. Nothing may be observed after that.
   */
  readonly isWhole: (ended: boolean) => boolean
  readonly usage: () => ProviderUsage
  readonly read: (isWhole: boolean) => AnswerReading
}

const closedTap = (why: TokensUnknown): AnswerTap => ({
  observe: () => {},
  isWhole: (ended) => ended,
  usage: () => ({}),
  read: () => ({ usage: {}, tokensUnknown: why, fault: null }),
})

const ENCODED_TAP = closedTap('encoded')
const UNREADABLE_TAP = closedTap('unreadable')

/**
 * Reads token usage and outcome from an answer as it passes, under a dialect's names. Its first byte says
 * whether it is JSON or events, or else `contentType`. Reads nothing of another type or encoding. Counts what
 * it keeps on `held`. `hear`: told each document that is read. Does NOT change, hold back or re-chunk anything.
 */
export function answerTap(
  names: AnswerNames,
  contentType: string,
  contentEncoding = 'identity',
  held: MemoryReservation | null = null,
  hear?: DocumentListener,
): AnswerTap {
  if (contentEncoding.toLowerCase() !== 'identity') return ENCODED_TAP
  const isEventStream = EVENTS.test(contentType)
  return isEventStream || JSON_TEXT.test(contentType)
    ? new PassingAnswer(names, isEventStream, held, hear)
    : UNREADABLE_TAP
}

const EVENTS = /^text\/event-stream\b/i
const JSON_TEXT = /^application\/([\w.+-]+\+)?json\b/i

const BOM = Buffer.from('\uFEFF')
const SPACE = 0x20

class PassingAnswer implements AnswerTap {
  readonly #statements: AnswerStatements
  readonly #held: MemoryReservation | null
  readonly #isEventType: boolean
  #reader: AnswerEventReader | PassingDocument | null = null
  #marked = 0

  constructor(
    names: AnswerNames,
    isEventStream: boolean,
    held: MemoryReservation | null,
    hear: DocumentListener | undefined,
  ) {
    this.#statements = new AnswerStatements(names, hear)
    this.#isEventType = isEventStream
    this.#held = held
  }

  observe(chunk: Buffer): void {
    if (this.#reader) this.#reader.add(chunk)
    else this.#begin(chunk)
  }

  #begin(chunk: Buffer): void {
    let at = 0
    while (at < chunk.length && this.#marked < BOM.length && chunk[at] === BOM[this.#marked]) {
      at += 1
      this.#marked += 1
    }
    while (at < chunk.length && (chunk[at] ?? 0) <= SPACE) at += 1
    if (at === chunk.length) return
    const first = chunk[at] ?? 0
    const isDocument = first === OPEN_BRACE || first === OPEN_BRACKET
    const isEvents = !isDocument && (this.#isEventType || EVENT_BEGINNINGS.includes(first))
    this.#reader = isEvents
      ? new AnswerEventReader(this.#statements, this.#held)
      : new PassingDocument(this.#statements, this.#held)
    this.#reader.add(chunk.subarray(at))
  }

  isWhole(ended: boolean): boolean {
    if (!this.#reader) return false
    this.#reader.end()
    const { isLast, isFinished } = this.#statements.outcome
    if (this.#reader instanceof PassingDocument) return this.#reader.isWhole
    return isLast || (ended && isFinished)
  }

  usage(): ProviderUsage {
    this.#reader?.end()
    return this.#statements.usage.usage()
  }

  read(isWhole: boolean): AnswerReading {
    this.#reader?.end()
    const isUnreadable = this.#reader instanceof PassingDocument && this.#reader.isUnreadable
    return this.#statements.reading(isWhole, isUnreadable)
  }
}

/** The first letters of the fields of an event, and of a comment: no JSON text begins with any. */
const EVENT_BEGINNINGS = Buffer.from('deir:')

/** A JSON document that comes in pieces: kept while it is short, and searched as it passes once it is not. */
class PassingDocument {
  readonly #statements: AnswerStatements
  readonly #kept = new ByteCollector(PARSED_WHOLE)
  readonly #fits: (bytes: number) => boolean
  #picker: MemberPicker | null = null
  #isOver = false
  isWhole = false
  /** True if it came to its end, and is no JSON. */
  isUnreadable = false

  constructor(statements: AnswerStatements, held: MemoryReservation | null) {
    this.#statements = statements
    this.#fits = peakReservation(held)
  }

  add(piece: Buffer): void {
    const { length } = this.#kept
    if (this.#picker) this.#picker.add(piece)
    else if (length + piece.length <= PARSED_WHOLE && this.#fits(length + piece.length)) this.#kept.add(piece)
    else {
      this.#picker = this.#statements.picker()
      this.#picker.add(this.#kept.bytes())
      this.#picker.add(piece)
      this.#kept.clear()
    }
  }

  /** Reads it: nothing more of it comes. */
  end(): void {
    if (this.#isOver) return
    this.#isOver = true
    if (this.#picker) {
      this.#statements.addPicked(this.#picker)
      this.isWhole = this.#picker.isWhole
      return
    }
    const text = this.#kept.bytes().toString()
    const root = parseOrNothing(text)
    this.#statements.addRoot(root)
    this.isWhole = root !== undefined || isClosed(text)
    this.isUnreadable = root === undefined && this.isWhole
    this.#kept.clear()
  }
}

/** Tells a text that ends as it began from one that was cut off. */
function isClosed(text: string): boolean {
  const first = text.charCodeAt(0)
  const last = text.trimEnd().charCodeAt(text.trimEnd().length - 1)
  return first === OPEN_BRACE ? last === CLOSE_BRACE : first !== OPEN_BRACKET || last === CLOSE_BRACKET
}
