import { ByteCollector, peakReservation } from '../../../plugins/collect.ts'
import type { MemoryReservation } from '../../../plugins/plugin.ts'
import type { MemberPicker } from './member-picker.ts'
import { type AnswerStatements, PARSED_WHOLE } from './statements.ts'

/** The events of one chunk that are read at least, if they may state something: each takes some 5 µs. */
const MAX_STATEMENTS = 64
/** The chunks of a stream whose first event is read whatever is in it, for the name of the model. */
const MAX_UNNAMED = 8
const NEWLINE = 0x0a
const RETURN = 0x0d
const BLANK_LINE = Buffer.from('\n\n')

/**
 * Finds events that may state something: usage, a use of a tool, a failure, the end, an id, or a name that is escaped.
 */
const STATEMENT =
  /"(?:usage|finish_reason|stop_reason|status_code|server_tool_use|(?:web_search|file_search|code_interpreter|image_generation)_call|file_id|response\.output_item\.done)"(?!\s*:\s*null)|"audio": ?\{ ?"id"|(?<ending>"error"(?!\s*:\s*null)|"(?:message_stop|response\.(?:completed|failed|incomplete|cancelled))"|\[DONE\]|event: ?error)|\\u00(?:[4-7]|2[eE])/g

/** Reads server-sent events in chunks cut anywhere (WHATWG HTML §9.2.5), for those that state something. */
export class AnswerEventReader {
  readonly #statements: AnswerStatements
  readonly #fits: (bytes: number) => boolean
  readonly #kept = new ByteCollector(PARSED_WHOLE)
  /** The event that has begun, once it is long. */
  #long: LongEvent | null = null
  /** True: the last line of the event that has begun is whole. */
  #endsLine = false
  /** True: the last chunk ended with a carriage return, which a newline may still follow. */
  #returned = false
  #unnamed = MAX_UNNAMED

  constructor(statements: AnswerStatements, held: MemoryReservation | null) {
    this.#statements = statements
    this.#fits = peakReservation(held)
  }

  add(chunk: Buffer): void {
    const lines = this.#withNewlines(chunk)
    let start = 0
    if (this.#kept.length > 0 || this.#long) {
      const isOver = this.#endsLine && lines[0] === NEWLINE
      const end = isOver ? 0 : lines.indexOf(BLANK_LINE)
      this.#keep(end < 0 ? lines : lines.subarray(0, end))
      if (end < 0) return
      this.end()
      start = end + (isOver ? 1 : BLANK_LINE.length)
    }
    const last = lines.lastIndexOf(BLANK_LINE)
    if (last >= start) {
      this.#readWhole(lines.subarray(start, last))
      start = last + BLANK_LINE.length
    }
    this.#keep(start === 0 ? lines : lines.subarray(start))
  }

  end(): void {
    if (this.#long) this.#statements.addPicked(this.#long.picker)
    else if (this.#kept.length > 0) this.#readWhole(this.#kept.bytes())
    this.#kept.clear()
    this.#long = null
  }

  #keep(piece: Buffer): void {
    if (piece.length === 0) return
    this.#endsLine = piece[piece.length - 1] === NEWLINE
    const length = this.#kept.length + piece.length
    if (this.#long) this.#long.add(piece)
    else if (length <= PARSED_WHOLE && this.#fits(length)) this.#kept.add(piece)
    else {
      this.#long = new LongEvent(this.#statements.picker())
      this.#long.add(this.#kept.bytes())
      this.#long.add(piece)
      this.#kept.clear()
    }
  }

  #withNewlines(chunk: Buffer): Buffer {
    if (!this.#returned && !chunk.includes(RETURN)) return chunk
    const text = chunk.toString('latin1')
    const begun = this.#returned && text.startsWith('\n') ? text.slice(1) : text
    this.#returned = text.endsWith('\r')
    return Buffer.from(begun.replaceAll(/\r\n?/g, '\n'), 'latin1')
  }

  /** Reads the first events that may state something, the last, and the first failure or end. */
  #readWhole(events: Buffer): void {
    const text = events.toString('latin1')
    let from = 0
    if (this.#unnamed > 0) {
      from = this.#readEvent(events, text, 0)
      this.#unnamed = this.#statements.usage.isNamed ? 0 : this.#unnamed - 1
    }
    let read = 0
    let [ending, last] = [-1, -1]
    STATEMENT.lastIndex = from
    for (let hit = STATEMENT.exec(text); hit; hit = STATEMENT.exec(text)) {
      read += 1
      if (read <= MAX_STATEMENTS) STATEMENT.lastIndex = this.#readEvent(events, text, hit.index)
      else {
        if (ending < 0 && hit.groups?.ending !== undefined) ending = hit.index
        last = hit.index
      }
    }
    for (const place of [ending, last]) if (place >= 0) this.#readEvent(events, text, place)
  }

  #readEvent(events: Buffer, text: string, place: number): number {
    const before = text.lastIndexOf('\n\n', place)
    const start = before < 0 ? 0 : before + BLANK_LINE.length
    const next = text.indexOf('\n\n', place)
    const end = next < 0 ? text.length : next
    if (end - start <= PARSED_WHOLE) addEvent(this.#statements, events.toString('utf8', start, end))
    else {
      const long = new LongEvent(this.#statements.picker())
      long.add(events.subarray(start, end))
      this.#statements.addPicked(long.picker)
    }
    return end
  }
}

function addEvent(statements: AnswerStatements, text: string): void {
  let name = ''
  const data: string[] = []
  for (const line of text.split('\n')) {
    if (line.startsWith(DATA)) data.push(line.slice(DATA.length))
    else if (line.startsWith(EVENT)) name = line.slice(EVENT.length).trim()
  }
  statements.addEvent(name, data.join('\n').trimStart())
}

const EVENT = 'event:'
const DATA = 'data:'

/** An event that is too long to be kept: its data goes to a picker, line by line. */
class LongEvent {
  readonly picker: MemberPicker
  /** The beginning of the line that has begun, until it says which field it is. */
  #field = ''

  constructor(picker: MemberPicker) {
    this.picker = picker
  }

  add(bytes: Buffer): void {
    let at = 0
    while (at < bytes.length) {
      const newline = bytes.indexOf(NEWLINE, at)
      const end = newline < 0 ? bytes.length : newline
      const told = Math.min(at + DATA.length - this.#field.length, end)
      this.#field += bytes.toString('latin1', at, told)
      if (this.#field === DATA) this.picker.add(bytes.subarray(told, end))
      if (newline >= 0) this.#field = ''
      at = end + 1
    }
  }
}
