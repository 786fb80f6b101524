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
import { pieceEnd, SHORT_SEARCH_BYTES } from '../../../plugins/json-body/plain-bytes.ts'
import type { JsonSpan, JudgedNamesOfText } from '../../../plugins/json-body/scan.ts'
import { Refusal } from '../../../plugins/refusal.ts'

/** Deeper than any vendor's request, and far above the stack that a recursive reader behind us may spend. */
const MAX_DEPTH = 64
/** Object members in the whole body. */
const MAX_MEMBERS = 100_000
/** Objects and arrays in the whole body. */
const MAX_CONTAINERS = 100_000
/** Commas in the whole body. A batch of embedded tokens stays well below. */
const MAX_VALUES = 1_000_000
/** Characters of a member's name, and of a number: V8 hashes a longer name by its length alone. */
const MAX_TOKEN = 16_383
/**
 * Members down to here are judged by name, so their names must be written plainly: V8's JSON.parse can read
 * an escaped name as another one that it has seen before (nodejs/node#63785).
 */
const JUDGED_DEPTH = 2
/** A step ends after so many tokens, or so many bytes; a string is read in pieces of so many bytes. */
const STEP_TOKENS = 512
const STEP_BYTES = 16_384
const PIECE = 262_144

const ENDS_WORD = Array.from({ length: 256 }, (_, byte) => Buffer.from(' \n\r\t",:[]{}').includes(byte))

interface FormerScan {
  readonly value: unknown
  /** The value of each member of the outermost object, by unescaped name. */
  readonly spans: ReadonlyMap<string, JsonSpan>
  /** True if any member's name, at whatever depth, is written with an escape: a reader may misread it. */
  readonly escapedNames: boolean
  /** The names that stand twice in the outermost object, if a scan leaves them: `value` has the last. */
  readonly repeated: ReadonlySet<string>
  /** The objects of `value` with more than 1,000 members: to list the names of one may hold up the loop. */
  readonly wide: ReadonlySet<object>
}

/** Reads a JSON text as `scanJson` did when it made every value: the oracle of its verdicts. */
export function formerScan(bytes: Buffer, judged: JudgedNamesOfText = JUDGED_DEPTH): FormerScan {
  const scanner = new Scanner(bytes, judged)
  while (!scanner.step());
  return scanner.result()
}

/** Members of an object whose names may be listed at once: V8 takes a quarter of a microsecond for each. */
const MAX_NARROW = 1_000

/** The next token. */
const [VALUE, VALUE_OR_END, NAME, NAME_OR_END, COLON_AFTER_NAME, COMMA_OR_END] = [0, 1, 2, 3, 4, 5] as const

/** An object or array that is open at this point of the scan. The outermost is of depth 1. */
interface OpenContainer {
  readonly outer: OpenContainer | null
  readonly depth: number
  readonly container: Record<string, unknown> | unknown[]
  /** For an object: the member that is being read, the start of its value, and the number so far. */
  name: string
  start: number
  members: number
}

const PLAIN_MEMBER = { writable: true, enumerable: true, configurable: true }

class Scanner {
  readonly #bytes: Buffer
  readonly #judged: JudgedNamesOfText
  #inside: OpenContainer | null = null
  #next: number = VALUE
  #at = 0
  /** The start of a long string as it was read, and the offset at which it goes on; 0: none is being read. */
  #begun = ''
  #rest = 0
  #members = 0
  #containers = 0
  #commas = 0
  #value: unknown
  readonly #spans = new Map<string, JsonSpan>()
  #escapedNames = false
  readonly #repeated = new Set<string>()
  readonly #wide = new Set<object>()

  constructor(bytes: Buffer, judged: JudgedNamesOfText) {
    this.#bytes = bytes
    this.#judged = judged
    if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) {
      throw invalid('starts with a byte order mark', 0)
    }
  }

  step(): boolean {
    const until = Math.min(this.#at + STEP_BYTES, this.#bytes.length)
    if (this.#rest > 0) this.#string(this.#rest)
    for (let tokens = 0; tokens < STEP_TOKENS && this.#findsToken(until); tokens += 1) this.#token()
    return this.#at >= this.#bytes.length
  }

  result(): FormerScan {
    if (this.#inside || this.#next !== COMMA_OR_END) throw this.#wrong()
    return {
      value: this.#value,
      spans: this.#spans,
      escapedNames: this.#escapedNames,
      repeated: this.#repeated,
      wide: this.#wide,
    }
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

  #name(byte: number): void {
    const at = this.#at
    const inside = this.#inside
    if (byte !== QUOTE || !inside) throw this.#wrong()
    const end = this.#pieceEnd(at + 1)
    const name = readStringText(this.#bytes, at + 1, end)
    if (this.#bytes[end] !== QUOTE || name.length > MAX_TOKEN) {
      throw invalid(`has a member name longer than ${MAX_TOKEN} characters`, at)
    }
    // A name as long as it is written is written plainly.
    if (name.length !== end - at - 1 && this.#bytes.subarray(at, end).includes(BACKSLASH)) {
      if (this.#isJudged(name, inside.depth)) {
        throw invalid('escapes a character in the name of an outer member', at)
      }
      this.#escapedNames = true
    }
    this.#members += 1
    this.#bound(this.#members, MAX_MEMBERS, 'members')
    inside.members += 1
    if (inside.members === MAX_NARROW + 1) this.#wide.add(inside.container)
    if (Object.hasOwn(inside.container, name)) this.#again(name, inside.depth, at)
    inside.name = name
    this.#at = end + 1
    this.#next = COLON_AFTER_NAME
  }

  #isJudged(name: string, depth: number): boolean {
    if (typeof this.#judged === 'number') return depth <= this.#judged
    // Some readers end a name at a NUL, and drop half a surrogate pair.
    if (depth <= JUDGED_DEPTH && (name.includes('\0') || !name.isWellFormed())) return true
    return depth === 1 && this.#judged.has(name)
  }

  /** A name stands twice in one object. */
  #again(name: string, depth: number, at: number): void {
    if (typeof this.#judged === 'number' || this.#isJudged(name, depth)) {
      throw invalid('names a member twice in one object', at)
    }
    if (depth === 1) this.#repeated.add(name)
  }

  #startOfValue(byte: number): void {
    if (this.#inside) this.#inside.start = this.#at
    if (byte === CLOSE_BRACKET && this.#next === VALUE_OR_END) this.#close()
    else if (byte === QUOTE) this.#string(this.#at + 1)
    else if (byte === OPEN_BRACE) this.#open({}, NAME_OR_END)
    else if (byte === OPEN_BRACKET) this.#open([], VALUE_OR_END)
    else this.#numberOrWord()
  }

  /** Reads the string that goes on at `start`, or a piece of it that is enough for one step. */
  #string(start: number): void {
    const end = this.#pieceEnd(start)
    const text = this.#begun + readStringText(this.#bytes, start, end)
    const isWhole = this.#bytes[end] === QUOTE
    this.#begun = isWhole ? '' : text
    this.#rest = isWhole ? 0 : end
    if (isWhole) this.#put(text, end + 1)
  }

  #pieceEnd(start: number): number {
    for (let at = start; at < start + SHORT_SEARCH_BYTES; at += 1) {
      if (this.#bytes[at] === QUOTE) return at
      if (this.#bytes[at] === BACKSLASH) at += 1
    }
    const end = pieceEnd(this.#bytes, start, PIECE)
    if (this.#bytes[end] === QUOTE || start + PIECE < this.#bytes.length) return end
    throw invalid('ends inside a string', this.#at)
  }

  #open(container: OpenContainer['container'], next: number): void {
    const depth = (this.#inside?.depth ?? 0) + 1
    if (depth > MAX_DEPTH) throw invalid(`is nested deeper than ${MAX_DEPTH}`, this.#at)
    this.#containers += 1
    this.#bound(this.#containers, MAX_CONTAINERS, 'objects and arrays')
    this.#inside = { outer: this.#inside, depth, container, name: '', start: -1, members: 0 }
    this.#pass(true, next)
  }

  /** A number, true, false or null. */
  #numberOrWord(): void {
    const start = this.#at
    let end = start
    const most = Math.min(start + MAX_TOKEN, this.#bytes.length)
    while (end < most && !ENDS_WORD[this.#bytes[end] ?? 0]) end += 1
    this.#put(parseScalar(this.#bytes.toString('latin1', start, end), start), end)
  }

  #endOfValue(byte: number): void {
    if (!this.#inside) throw this.#wrong()
    const isList = Array.isArray(this.#inside.container)
    if (byte === (isList ? CLOSE_BRACKET : CLOSE_BRACE)) this.#close()
    else {
      this.#commas += 1
      this.#bound(this.#commas, MAX_VALUES, 'values')
      this.#pass(byte === COMMA, isList ? VALUE : NAME)
    }
  }

  #close(): void {
    const closed = this.#inside
    this.#inside = closed?.outer ?? null
    this.#put(closed?.container, this.#at + 1)
  }

  #put(value: unknown, end: number): void {
    this.#at = end
    this.#next = COMMA_OR_END
    const inside = this.#inside
    if (!inside) this.#value = value
    else if (Array.isArray(inside.container)) inside.container.push(value)
    else {
      const { container, name, start, depth } = inside
      // Assigned, it would be the prototype.
      if (name === '__proto__') Object.defineProperty(container, name, { value, ...PLAIN_MEMBER })
      else container[name] = value
      if (depth === 1) this.#spans.set(name, { start, end })
    }
  }

  #bound(count: number, most: number, what: string): void {
    if (count > most) throw invalid(`holds more than ${most} ${what}`, this.#at)
  }

  #wrong(): Refusal {
    return invalid('is not valid JSON', this.#at)
  }
}

const isSpace = (byte: number | undefined): boolean =>
  byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09

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
