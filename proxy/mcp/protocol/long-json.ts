import { isUtf8 } from 'node:buffer'
import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  COMMA,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
} from '../../../plugins/json-body/bytes.ts'
import { isSpace, PlainBytes } from '../../../plugins/json-body/plain-bytes.ts'
import {
  JUDGED_DEPTH,
  MAX_SCAN_CONTAINERS,
  MAX_SCAN_DEPTH,
  MAX_SCAN_MEMBERS,
  MAX_SCAN_TOKEN,
  MAX_SCAN_VALUES,
} from '../../../plugins/json-body/scan.ts'
import type { WorkSteps } from '../../../plugins/turns.ts'

/** A step ends after so many tokens, or so many bytes. */
const STEP_TOKENS = 1_024
const STEP_BYTES = 131_072
/** Names of one object that are compared one by one. */
const FEW_NAMES = 16

/** The place of a member's value, and the number of values in it, itself included. */
export interface LongMember {
  readonly start: number
  readonly end: number
  readonly values: number
}

export interface LongObject {
  readonly members: ReadonlyMap<string, LongMember>
  /** True: a name in it is written with an escape. */
  readonly escapedNames: boolean
}

export interface LongJson extends LongObject {
  /** The members that are looked into, if they are objects. The places in them are those of the whole text. */
  readonly inner: ReadonlyMap<string, LongObject>
}

/**
 * Reads a long JSON text as strictly as `scanJson` does, and by its bounds, without a value. Returns null if it is no object, and
 * throws SyntaxError. `lookedInto`: names of outermost members.
 */
export function* longJsonSteps(bytes: Buffer, lookedInto: readonly string[]): WorkSteps<LongJson | null> {
  const reader = new LongJsonReader(bytes, lookedInto)
  while (!reader.step()) yield
  return reader.result()
}

const [VALUE, VALUE_OR_END, NAME, NAME_OR_END, COLON_AFTER_NAME, COMMA_OR_END] = [0, 1, 2, 3, 4, 5] as const

interface OpenObject {
  readonly members: Map<string, LongMember>
  escapedNames: boolean
}

const newObject = (): OpenObject => ({ members: new Map(), escapedNames: false })

/** An object or list that is open. One for each depth is used again and again. */
class OpenLevel {
  isList = false
  /** The first of its names among those of all open objects; the names themselves once they are many. */
  firstName = 0
  many: Set<string> | null = null
  /** The object whose members are noted; the member that is read now. */
  noted: OpenObject | null = null
  name = ''
  start = 0
  valuesBefore = 0
}

class LongJsonReader {
  readonly #bytes: Buffer
  readonly #plain: PlainBytes
  readonly #lookedInto: readonly string[]
  readonly #levels = Array.from({ length: MAX_SCAN_DEPTH + 1 }, () => new OpenLevel())
  readonly #inner = new Map<string, OpenObject>()
  readonly #outer = newObject()
  #isObject = false
  #depth = 0
  #next: number = VALUE
  #at = 0
  #isInString = false
  #members = 0
  #containers = 0
  #commas = 0
  #values = 0
  /** The names of all open objects, as long as they are few: hash, place and end; and their number. */
  readonly #hashes = new Int32Array(MAX_SCAN_DEPTH * (FEW_NAMES + 1))
  readonly #starts = new Int32Array(MAX_SCAN_DEPTH * (FEW_NAMES + 1))
  readonly #ends = new Int32Array(MAX_SCAN_DEPTH * (FEW_NAMES + 1))
  #named = 0

  constructor(bytes: Buffer, lookedInto: readonly string[]) {
    if (!isUtf8(bytes)) throw new SyntaxError('not UTF-8')
    this.#bytes = bytes
    this.#lookedInto = lookedInto
    this.#plain = new PlainBytes(bytes)
  }

  result(): LongJson | null {
    if (this.#depth > 0 || this.#next !== COMMA_OR_END) throw wrong()
    return this.#isObject ? { ...this.#outer, inner: this.#inner } : null
  }

  /** Returns true at the end of the text. */
  step(): boolean {
    const bytes = this.#bytes
    const until = Math.min(this.#at + STEP_BYTES, bytes.length)
    if (this.#isInString) this.#string(this.#at)
    for (let tokens = 0; tokens < STEP_TOKENS && !this.#isInString; tokens += 1) {
      let at = this.#at
      while (at < until && isSpace(bytes[at])) at += 1
      this.#at = at
      if (at >= until) break
      this.#token(bytes[at] ?? 0)
    }
    return this.#at >= bytes.length
  }

  #token(byte: number): void {
    const next = this.#next
    if (next === COMMA_OR_END) this.#afterValue(byte)
    else if (next === COLON_AFTER_NAME) this.#pass(byte === COLON, VALUE)
    else if (next === NAME || next === NAME_OR_END) {
      if (byte === CLOSE_BRACE && next === NAME_OR_END) this.#close()
      else this.#name(byte)
    } else if (byte === CLOSE_BRACKET && next === VALUE_OR_END) this.#close()
    else this.#value(byte)
  }

  #pass(isRight: boolean, next: number): void {
    if (!isRight) throw wrong()
    this.#at += 1
    this.#next = next
  }

  #value(byte: number): void {
    const level = this.#level
    if (this.#depth <= JUDGED_DEPTH && level.noted) {
      level.start = this.#at
      level.valuesBefore = this.#values
    }
    this.#values += 1
    if (byte === QUOTE) this.#string(this.#at + 1)
    else if (byte === OPEN_BRACE) this.#open(false, NAME_OR_END)
    else if (byte === OPEN_BRACKET) this.#open(true, VALUE_OR_END)
    else this.#put(this.#scalarEnd(byte))
  }

  get #level(): OpenLevel {
    return this.#levels[this.#depth] as OpenLevel
  }

  #afterValue(byte: number): void {
    if (this.#depth === 0) throw wrong()
    const { isList } = this.#level
    if (byte === (isList ? CLOSE_BRACKET : CLOSE_BRACE)) {
      this.#close()
      return
    }
    this.#commas += 1
    this.#pass(byte === COMMA && this.#commas <= MAX_SCAN_VALUES, isList ? VALUE : NAME)
  }

  #open(isList: boolean, next: number): void {
    const outer = this.#level
    this.#depth += 1
    this.#containers += 1
    if (this.#depth > MAX_SCAN_DEPTH || this.#containers > MAX_SCAN_CONTAINERS) throw wrong()
    const level = this.#level
    level.isList = isList
    level.firstName = this.#named
    level.many = null
    level.noted = null
    if (!isList && this.#depth === 1) {
      this.#isObject = true
      level.noted = this.#outer
    } else if (!isList && this.#depth === JUDGED_DEPTH && this.#lookedInto.includes(outer.name)) {
      level.noted = newObject()
      this.#inner.set(outer.name, level.noted)
    }
    this.#pass(true, next)
  }

  #close(): void {
    this.#named = this.#level.firstName
    this.#depth -= 1
    this.#put(this.#at + 1)
  }

  #put(end: number): void {
    this.#at = end
    this.#next = COMMA_OR_END
    if (this.#depth > JUDGED_DEPTH || this.#depth === 0) return
    const { noted, name, start, valuesBefore } = this.#level
    noted?.members.set(name, { start, end, values: this.#values - valuesBefore })
  }

  #string(from: number): void {
    const { length } = this.#bytes
    const until = Math.min(from + STEP_BYTES, length)
    const at = this.#plain.stringEnd(from, until)
    this.#isInString = at >= until && at < length
    if (this.#isInString) this.#at = at
    else if (at < until && this.#bytes[at] === QUOTE) this.#put(at + 1)
    else throw wrong()
  }

  #name(byte: number): void {
    if (byte !== QUOTE) throw wrong()
    const bytes = this.#bytes
    const start = this.#at + 1
    let end = this.#plain.nameEnd(start)
    const isOdd = end < 0
    if (isOdd) end = this.#plain.stringEnd(start, Math.min(start + STEP_BYTES, bytes.length))
    if (bytes[end] !== QUOTE) throw wrong()
    this.#members += 1
    if (this.#members > MAX_SCAN_MEMBERS) throw wrong()
    const level = this.#level
    const isEscaped = isOdd && bytes.subarray(start, end).includes(BACKSLASH)
    if (isEscaped && this.#depth <= JUDGED_DEPTH) throw wrong()
    if (isEscaped) this.#noteEscape()
    if (end - start > MAX_SCAN_TOKEN && textOf(bytes, start, end).length > MAX_SCAN_TOKEN) throw wrong()
    if (isEscaped) level.many ??= this.#namesOf(level)
    if (level.many)
      this.#addName(
        level.many,
        isEscaped ? unescapedName(bytes, start, end) : bytes.toString('latin1', start, end),
      )
    else this.#once(level, start, end)
    if (level.noted) level.name = bytes.toString('utf8', start, end)
    this.#at = end + 1
    this.#next = COLON_AFTER_NAME
  }

  #noteEscape(): void {
    this.#outer.escapedNames = true
    const { noted } = this.#levels[JUDGED_DEPTH] as OpenLevel
    if (noted) noted.escapedNames = true
  }

  /** Refuses a name that its object has already. */
  #once(level: OpenLevel, start: number, end: number): void {
    const bytes = this.#bytes
    let hash = end - start
    for (let at = start; at < end; at += 1) hash = (Math.imul(hash, 31) + (bytes[at] ?? 0)) | 0
    const hashes = this.#hashes
    const named = this.#named
    for (let place = level.firstName; place < named; place += 1) {
      if (hashes[place] !== hash) continue
      if (bytes.compare(bytes, this.#starts[place], this.#ends[place], start, end) === 0) throw wrong()
    }
    hashes[named] = hash
    this.#starts[named] = start
    this.#ends[named] = end
    this.#named = named + 1
    if (named - level.firstName >= FEW_NAMES) level.many = this.#namesOf(level)
  }

  #addName(names: Set<string>, name: string): void {
    if (names.has(name)) throw wrong()
    names.add(name)
  }

  /** Returns the names so far, a character for a byte. */
  #namesOf({ firstName }: OpenLevel): Set<string> {
    const names = new Set<string>()
    for (let place = firstName; place < this.#named; place += 1)
      names.add(this.#bytes.toString('latin1', this.#starts[place], this.#ends[place]))
    return names
  }

  /** Returns the end of a number or word. */
  #scalarEnd(first: number): number {
    const bytes = this.#bytes
    const start = this.#at
    const end = first < SMALL_A ? numberEnd(bytes, start) : (WORDS.get(first)?.(bytes, start) ?? -1)
    if (end < 0 || end - start > MAX_SCAN_TOKEN) throw wrong()
    return end
  }
}

const wrong = (): SyntaxError => new SyntaxError('not strict JSON')

const SMALL_A = 0x61

const textOf = (bytes: Buffer, start: number, end: number): string =>
  String(JSON.parse(`"${bytes.toString('utf8', start, end)}"`))

/** Writes an escaped name a character for a byte, as plain ones are compared. */
function unescapedName(bytes: Buffer, start: number, end: number): string {
  const name = textOf(bytes, start, end)
  // Half a surrogate pair has no bytes of its own, and no byte is this character.
  return name.isWellFormed() ? Buffer.from(name).toString('latin1') : `\uffff${name}`
}

const wordEnd = (word: string): ((bytes: Buffer, start: number) => number) => {
  const letters = Buffer.from(word)
  return (bytes, start) => {
    for (let index = 1; index < letters.length; index += 1)
      if (bytes[start + index] !== letters[index]) return -1
    return start + letters.length
  }
}

const WORDS = new Map(['true', 'false', 'null'].map((word) => [word.charCodeAt(0), wordEnd(word)]))

const [ZERO, MINUS, PLUS, DOT] = [0x30, 0x2d, 0x2b, 0x2e]
const isDigit = (byte: number | undefined): boolean => byte !== undefined && byte >= ZERO && byte <= ZERO + 9

/** Returns the end of a number (RFC 8259 §6); -1 if there is none. */
function numberEnd(bytes: Buffer, start: number): number {
  let at = start + Number(bytes[start] === MINUS)
  if (bytes[at] === ZERO) at += 1
  else at = digitsEnd(bytes, at)
  if (at > 0 && bytes[at] === DOT) at = digitsEnd(bytes, at + 1)
  if (at > 0 && ((bytes[at] ?? 0) | 0x20) === 0x65) {
    const sign = bytes[at + 1]
    at = digitsEnd(bytes, at + 1 + Number(sign === PLUS || sign === MINUS))
  }
  return at
}

/** Returns the end of one digit or more; -1 if there is none. */
function digitsEnd(bytes: Buffer, start: number): number {
  let at = start
  while (isDigit(bytes[at])) at += 1
  return at > start ? at : -1
}
