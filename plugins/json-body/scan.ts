import { isUtf8 } from 'node:buffer'
import { Refusal } from '../refusal.ts'
import type { WorkSteps } from '../turns.ts'
import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  COMMA,
  ENDS_WORD,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
} from './bytes.ts'
import { pieceEnd } from './pieces.ts'
import { isSpace, nameText, PlainBytes } from './plain-bytes.ts'
import { buildValue, type JsonScan, type JsonSpan, LazyScan } from './value.ts'

export type { JsonScan, JsonSpan } from './value.ts'

/** Deeper than any vendor's request, and far above the stack that a recursive reader behind us may spend. */
export const MAX_SCAN_DEPTH = 64
/** Object members in the whole body. */
export const MAX_SCAN_MEMBERS = 100_000
/** Objects and arrays in the whole body. */
export const MAX_SCAN_CONTAINERS = 100_000
/** Commas in the whole body. A batch of embedded tokens stays well below. */
export const MAX_SCAN_VALUES = 1_000_000
/** Characters of a member's name, and of a number: V8 hashes a longer name by its length alone. */
export const MAX_SCAN_TOKEN = 16_383
/**
 * Members down to here are judged by name, so their names must be written plainly: V8's JSON.parse can read
 * an escaped name as another one that it has seen before (nodejs/node#63785).
 */
export const JUDGED_DEPTH = 2
/** A step ends after so many tokens, or so many bytes; a string is read in pieces of so many bytes. */
const STEP_TOKENS = 512
const STEP_BYTES = 16_384
const PIECE = 262_144
/** Names of one object that are compared one by one. */
const FEW_NAMES = 16

/** Down to which depth every name is judged; or which outermost names are, and no others. */
export type JudgedNamesOfText = number | { readonly has: (name: string) => boolean }

/**
 * Checks a JSON text once, as JSON.parse reads it, and refuses with `body_invalid` a text that JSON.parse
 * would not take, that two readers could take for two different things, or that costs out of all proportion
 * (docs/threats.md#t14, #threat-31, #a5): invalid UTF-8, a byte order mark, nesting deeper than 64, more than
 * 100,000 members, 100,000 objects and arrays, or 1,000,000 commas, a name twice in one object, a name or
 * number of more than 16,383 characters, an escape in the name of an outer member. Linear in the length of
 * the text. `judged`: down to where a member is an outer one, by default 2; or the only members, of the
 * outermost object, that must be written plainly and once.
 */
export function scanJson(bytes: Buffer, judged: JudgedNamesOfText = JUDGED_DEPTH): JsonScan {
  const scanner = new Scanner(bytes, judged)
  while (!scanner.step());
  return scanner.result()
}

/** Does what {@link scanJson} does, in steps far below a millisecond; so is a value that is long or dear. */
export function* scanJsonSteps(bytes: Buffer, judged: JudgedNamesOfText = JUDGED_DEPTH): WorkSteps<JsonScan> {
  const scanner = new Scanner(bytes, judged)
  while (!scanner.step()) yield
  const scan = scanner.result()
  // Of a text whose outermost names alone are judged, nobody reads more than short members.
  if (typeof judged !== 'number' || !scan.isObject || !scanner.isDear) return scan
  const wide = new Set<object>()
  return { ...scan, wide, value: yield* buildValue(bytes, scanner.rootAt, scanner.wideAt, wide) }
}

/** V8 reads so many bytes, and so many members, objects and arrays, in a few milliseconds. */
const MAX_READ_AT_ONCE = 524_288
const MAX_MADE_AT_ONCE = 20_000

/** Members of an object whose names may be listed at once: V8 takes a quarter of a microsecond for each. */
const MAX_NARROW = 1_000

/** The next token. */
const [VALUE, VALUE_OR_END, NAME, NAME_OR_END, COLON_AFTER_NAME, COMMA_OR_END] = [0, 1, 2, 3, 4, 5] as const

/** An object or array that is open at this point of the scan. The outermost is of depth 1. */
interface OpenContainer {
  isList: boolean
  /** The place of its bracket. */
  at: number
  /** For an object: the member that is being read, the start of its value, and the number so far. */
  name: string
  start: number
  members: number
  /** The place of its first name among those of all open objects; the names themselves once they are many. */
  firstName: number
  many: Set<string> | null
  /** The list of its names, if they are listed. */
  listed: string[] | null
}

class Scanner {
  readonly #bytes: Buffer
  readonly #judged: JudgedNamesOfText
  /** True: every object is searched for names that stand twice. */
  readonly #isStrict: boolean
  readonly #isUtf8: boolean
  readonly #plain: PlainBytes
  /** One for each depth, used again and again. */
  readonly #containers: OpenContainer[] = []
  #depth = 0
  #next: number = VALUE
  #at = 0
  /** The offset at which a long string goes on; 0: none is being read. */
  #rest = 0
  /** True: something is wrong with that string, or may be. */
  #isDoubted = false
  #names: string[] = []
  #members = 0
  #opened = 0
  #commas = 0
  /** The place of the outermost value. */
  rootAt = 0
  readonly #spans = new Map<string, JsonSpan>()
  readonly #inner = new Map<string, string[]>()
  #escapedNames = false
  readonly #repeated = new Set<string>()
  /** The places of the objects with more than 1,000 members. */
  readonly wideAt = new Set<number>()

  constructor(bytes: Buffer, judged: JudgedNamesOfText) {
    this.#bytes = bytes
    this.#judged = judged
    this.#isStrict = typeof judged === 'number'
    if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) {
      throw invalid('starts with a byte order mark', 0)
    }
    this.#isUtf8 = isUtf8(bytes)
    this.#plain = new PlainBytes(bytes)
  }

  /** True: to make the value at once might hold up the loop. */
  get isDear(): boolean {
    const made = this.#members + this.#opened + this.#commas / 8
    return this.#isOdd || this.#bytes.length > MAX_READ_AT_ONCE || made > MAX_MADE_AT_ONCE
  }

  /** True: V8 alone does not tell what is to be known of the value. */
  get #isOdd(): boolean {
    return this.#escapedNames || this.wideAt.size > 0
  }

  step(): boolean {
    const until = Math.min(this.#at + STEP_BYTES, this.#bytes.length)
    if (this.#rest > 0) this.#string(this.#rest)
    for (let tokens = 0; tokens < STEP_TOKENS && this.#findsToken(until); tokens += 1) this.#token()
    return this.#at >= this.#bytes.length
  }

  result(): JsonScan {
    if (this.#depth > 0 || this.#next !== COMMA_OR_END) throw this.#wrong()
    return new LazyScan(this.#bytes, this.rootAt, {
      spans: this.#spans,
      inner: this.#inner,
      escapedNames: this.#escapedNames,
      repeated: this.#repeated,
      wideAt: this.#isOdd ? this.wideAt : null,
    })
  }

  /** Skips white space. Returns false if nothing else comes until there, and if a string goes on. */
  #findsToken(until: number): boolean {
    if (this.#rest > 0) return false
    let at = this.#at
    for (let byte = this.#bytes[at]; at < until && isSpace(byte); byte = this.#bytes[at]) at += 1
    this.#at = at
    return at < until
  }

  #token(): void {
    const byte = this.#bytes[this.#at] ?? 0
    if (this.#next === VALUE || this.#next === VALUE_OR_END) this.#startOfValue(byte)
    else if (this.#next === COMMA_OR_END) this.#endOfValue(byte)
    else if (this.#next === COLON_AFTER_NAME) this.#pass(byte === COLON, VALUE)
    else if (this.#next === NAME_OR_END && byte === CLOSE_BRACE) this.#close()
    else this.#name(byte)
  }

  /** Passes a byte that is `right`. */
  #pass(right: boolean, next: number): void {
    if (!right) throw this.#wrong()
    this.#at += 1
    this.#next = next
  }

  #inside(): OpenContainer | undefined {
    return this.#containers[this.#depth - 1]
  }

  #name(byte: number): void {
    const at = this.#at
    const inside = this.#inside()
    if (byte !== QUOTE || !inside) throw this.#wrong()
    let end = this.#isUtf8 ? this.#plain.nameEnd(at + 1) : -1
    let name: string | null = null
    if (end < 0) {
      ;({ name, end } = this.#oddName(at))
    }
    this.#members += 1
    this.#bound(this.#members, MAX_SCAN_MEMBERS, 'members')
    inside.members += 1
    if (inside.members === MAX_NARROW + 1) this.wideAt.add(inside.at)
    const isListed = inside.listed !== null && inside.members <= MAX_NARROW + 1
    if (this.#isStrict || this.#depth === 1 || isListed) {
      name ??= nameText(this.#bytes, at + 1, end)
      if (isListed) inside.listed?.push(name)
      if (this.#isStrict) this.#once(name, inside, at)
      else if (this.#depth === 1 && this.#spans.has(name)) this.#again(name, at)
      inside.name = name
    }
    this.#at = end + 1
    this.#next = COLON_AFTER_NAME
  }

  /** Reads a name that is long, or written with an escape, or no name at all. */
  #oddName(at: number): { readonly name: string; readonly end: number } {
    const end = this.#pieceEnd(at + 1)
    const name = readStringText(this.#bytes, at + 1, end)
    if (this.#bytes[end] !== QUOTE || name.length > MAX_SCAN_TOKEN) {
      throw invalid(`has a member name longer than ${MAX_SCAN_TOKEN} characters`, at)
    }
    // A name as long as it is written is written plainly.
    if (name.length !== end - at - 1 && this.#bytes.subarray(at, end).includes(BACKSLASH)) {
      if (this.#isJudged(name)) throw invalid('escapes a character in the name of an outer member', at)
      this.#escapedNames = true
    }
    return { name, end }
  }

  #isJudged(name: string): boolean {
    if (typeof this.#judged === 'number') return this.#depth <= this.#judged
    // Some readers end a name at a NUL, and drop half a surrogate pair.
    if (this.#depth <= JUDGED_DEPTH && (name.includes('\0') || !name.isWellFormed())) return true
    return this.#depth === 1 && this.#judged.has(name)
  }

  /** Refuses a name that stands in its object already. */
  #once(name: string, inside: OpenContainer, at: number): void {
    const names = this.#names
    if (inside.many) {
      if (inside.many.has(name)) throw twice(at)
      inside.many.add(name)
      return
    }
    for (let place = inside.firstName; place < names.length; place += 1) {
      if (names[place] === name) throw twice(at)
    }
    names.push(name)
    if (names.length - inside.firstName > FEW_NAMES) inside.many = new Set(names.slice(inside.firstName))
  }

  /** A name stands twice in the outermost object. */
  #again(name: string, at: number): void {
    if (this.#isJudged(name)) throw twice(at)
    this.#repeated.add(name)
    // The last one counts.
    this.#inner.delete(name)
  }

  #startOfValue(byte: number): void {
    const inside = this.#inside()
    if (inside) inside.start = this.#at
    else this.rootAt = this.#at
    if (byte === CLOSE_BRACKET && this.#next === VALUE_OR_END) this.#close()
    else if (byte === QUOTE) this.#string(this.#at + 1)
    else if (byte === OPEN_BRACE) this.#open(false, NAME_OR_END)
    else if (byte === OPEN_BRACKET) this.#open(true, VALUE_OR_END)
    else this.#numberOrWord()
  }

  /** Passes the string that goes on at `start`, or as much of it as is enough for one step. */
  #string(start: number): void {
    if (this.#isDoubted || !this.#isUtf8) this.#doubtful(start)
    else {
      const bytes = this.#bytes
      const until = Math.min(start + PIECE, bytes.length)
      const at = this.#plain.stringEnd(start, until)
      if (at < until && bytes[at] === QUOTE) this.#put(at + 1)
      else if (at >= until && at < bytes.length) this.#rest = at
      else this.#doubt()
    }
  }

  /** Begins the string once more, to say what is wrong with it and where. */
  #doubt(): void {
    this.#isDoubted = true
    this.#doubtful(this.#at + 1)
  }

  /** Reads a piece of a string by itself, and refuses it. */
  #doubtful(start: number): void {
    const end = this.#pieceEnd(start)
    readStringText(this.#bytes, start, end)
    if (this.#bytes[end] === QUOTE) this.#put(end + 1)
    else this.#rest = end
  }

  #pieceEnd(start: number): number {
    const end = pieceEnd(this.#bytes, start, PIECE)
    if (this.#bytes[end] === QUOTE || start + PIECE < this.#bytes.length) return end
    throw invalid('ends inside a string', this.#at)
  }

  #open(isList: boolean, next: number): void {
    const outer = this.#inside()
    const at = this.#at
    if (this.#depth === MAX_SCAN_DEPTH) throw invalid(`is nested deeper than ${MAX_SCAN_DEPTH}`, at)
    this.#opened += 1
    this.#bound(this.#opened, MAX_SCAN_CONTAINERS, 'objects and arrays')
    const isInner = this.#depth === 1 && !this.#isStrict && !isList && outer?.isList === false
    const listed: string[] | null = isInner ? [] : null
    if (listed && outer) this.#inner.set(outer.name, listed)
    const firstName = this.#names.length
    const container = this.#containers[this.#depth]
    if (container) {
      container.isList = isList
      container.at = at
      container.members = 0
      container.firstName = firstName
      container.many = null
      container.listed = listed
    } else {
      const members = { name: '', start: -1, members: 0 }
      this.#containers.push({ isList, at, ...members, firstName, many: null, listed })
    }
    this.#depth += 1
    this.#pass(true, next)
  }

  /** A number, true, false or null. */
  #numberOrWord(): void {
    const bytes = this.#bytes
    const start = this.#at
    let end = start
    let isInteger = true
    const most = Math.min(start + MAX_SCAN_TOKEN, bytes.length)
    for (let byte = bytes[end] ?? 0; end < most && ENDS_WORD[byte] === 0; byte = bytes[end] ?? 0) {
      isInteger &&= byte >= 0x30 && byte <= 0x39
      end += 1
    }
    const isPlain = isInteger && end > start && (bytes[start] !== 0x30 || end === start + 1)
    if (!isPlain) parseScalar(bytes.toString('latin1', start, end), start)
    this.#put(end)
  }

  #endOfValue(byte: number): void {
    const inside = this.#inside()
    if (!inside) throw this.#wrong()
    if (byte === (inside.isList ? CLOSE_BRACKET : CLOSE_BRACE)) this.#close()
    else {
      this.#commas += 1
      this.#bound(this.#commas, MAX_SCAN_VALUES, 'values')
      this.#pass(byte === COMMA, inside.isList ? VALUE : NAME)
    }
  }

  #close(): void {
    const closed = this.#inside()
    if (closed) this.#names.length = closed.firstName
    this.#depth -= 1
    this.#put(this.#at + 1)
  }

  #put(end: number): void {
    this.#at = end
    this.#rest = 0
    this.#next = COMMA_OR_END
    if (this.#depth !== 1) return
    const { isList, name, start } = this.#containers[0] as OpenContainer
    if (!isList) this.#spans.set(name, { start, end })
  }

  #bound(count: number, most: number, what: string): void {
    if (count > most) throw invalid(`holds more than ${most} ${what}`, this.#at)
  }

  #wrong(): Refusal {
    return invalid('is not valid JSON', this.#at)
  }
}

const twice = (at: number): Refusal => invalid('names a member twice in one object', at)

/** Characters that do not stand for themselves, or must not stand in a string at all. */
const NOT_PLAIN = /[\\\x00-\x1f]/

/** Reads the text between the quotes of a string, or a part of it. */
function readStringText(bytes: Buffer, start: number, end: number): string {
  const text = bytes.toString('utf8', start, end)
  const isDoubtful = text.includes('\ufffd')
  if (isDoubtful && !isUtf8(bytes.subarray(start, end))) throw invalid('is not valid UTF-8', start)
  return NOT_PLAIN.test(text) ? String(parseScalar(`"${text}"`, start)) : text
}

function parseScalar(text: string, at: number): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // Its own message quotes the text.
    throw invalid('is not valid JSON', at)
  }
}

/** `problem` completes the sentence "The body …". `offset` is in bytes. */
function invalid(problem: string, offset: number): Refusal {
  return new Refusal('body_invalid', {
    message: `The body ${problem} (at byte ${offset}).`,
    detail: { offset },
  })
}
