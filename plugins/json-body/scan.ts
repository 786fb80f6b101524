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
import {
  isSpace,
  nameText,
  type ObjectNames,
  OpenNames,
  PlainBytes,
  pieceEnd,
  scalarEnd,
} from './plain-bytes.ts'
import { buildValue, type JsonScan, LazyScan, ScannedObject } from './value.ts'

export type { JsonScan, JsonSpan, MemberSpan } from './value.ts'

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

/** Names that are looked for at every depth, by length: a name of another length is not even compared. */
export class WatchedNames {
  readonly #byLength: readonly (readonly string[] | undefined)[]

  constructor(names: readonly string[]) {
    const byLength: string[][] = []
    for (const name of names) {
      const alike = byLength[name.length]
      if (alike) alike.push(name)
      else byLength[name.length] = [name]
    }
    this.#byLength = byLength
  }

  has(name: string): boolean {
    return this.#byLength[name.length]?.includes(name) ?? false
  }

  /** Finds the one that stands, plainly written, between two places. */
  nameAt(bytes: Buffer, start: number, end: number): string | undefined {
    const names = this.#byLength[end - start]
    return names?.find((name) => isTextAt(bytes, start, name))
  }
}

function isTextAt(bytes: Buffer, start: number, text: string): boolean {
  for (let at = 0; at < text.length; at += 1) if (bytes[start + at] !== text.charCodeAt(at)) return false
  return true
}

/** Down to which depth every name is judged; or which outermost names are, and no others. */
export type JudgedNamesOfText = number | { readonly has: (name: string) => boolean }

/**
 * Checks a JSON text once, as JSON.parse reads it, and refuses with `body_invalid` a text that JSON.parse
 * would not take, that two readers could take for two different things, or that costs out of all proportion
 * (docs/threats.md#t14, #threat-31, #a5): invalid UTF-8, a byte order mark, nesting deeper than 64, more than
 * 100,000 members, 100,000 objects and arrays, or 1,000,000 commas, a name twice in one object, a name or
 * number of more than 16,383 characters, an escape in the name of an outer member. Linear in the length of
 * the text. `judged`: down to where a member is an outer one, by default 2; or the only members, of the
 * outermost object, that must be written plainly and once. `lookedInto`: names of outermost members.
 * `watched`: names at any depth, of which the scan says only if there are any.
 */
export function scanJson(
  bytes: Buffer,
  judged: JudgedNamesOfText = JUDGED_DEPTH,
  lookedInto: readonly string[] = NONE,
  watched: WatchedNames | null = null,
): JsonScan {
  const scanner = new Scanner(bytes, judged, lookedInto, watched)
  while (!scanner.step());
  return scanner.result()
}

/** Does what {@link scanJson} does, in steps far below a millisecond; so is a value that is long or dear. */
export function* scanJsonSteps(
  bytes: Buffer,
  judged: JudgedNamesOfText = JUDGED_DEPTH,
  lookedInto: readonly string[] = NONE,
  watched: WatchedNames | null = null,
): WorkSteps<JsonScan> {
  const scanner = yield* scanSteps(bytes, judged, lookedInto, watched)
  const scan = scanner.result()
  // Of a text whose outermost names alone are judged, nobody reads more than short members.
  if (typeof judged !== 'number' || !scan.isObject || !scanner.isDear) return scan
  const wide = new Set<object>()
  return { ...scan, wide, value: yield* buildValue(bytes, scanner.rootAt, scanner.wideAt, wide) }
}

/** Does what {@link scanJson} does, in steps, for a reader of places who does not read the value. */
export function* scanPlacesSteps(bytes: Buffer, lookedInto: readonly string[]): WorkSteps<JsonScan> {
  const scanner = yield* scanSteps(bytes, JUDGED_DEPTH, lookedInto, null)
  return scanner.result()
}

function* scanSteps(...of: ConstructorParameters<typeof Scanner>): WorkSteps<Scanner> {
  const scanner = new Scanner(...of)
  while (!scanner.step()) yield
  return scanner
}

const NONE: readonly string[] = []

/** V8 reads so many bytes, and so many members, objects and arrays, in a few milliseconds. */
const MAX_READ_AT_ONCE = 524_288
const MAX_MADE_AT_ONCE = 20_000

/** Members of an object whose names may be listed at once: V8 takes a quarter of a microsecond for each. */
const MAX_NARROW = 1_000

/** The next token. */
const [VALUE, VALUE_OR_END, NAME, NAME_OR_END, COLON_AFTER_NAME, COMMA_OR_END] = [0, 1, 2, 3, 4, 5] as const

/** An object or array that is open at this point of the scan, or the text around the outermost one. */
class OpenContainer implements ObjectNames {
  isList = false
  /** The place of its bracket. */
  at = 0
  members = 0
  firstName = 0
  many: Set<string> | null = null
  /** The list of its names, if they are listed. */
  listed: string[] | null = null
  /** The object whose members are noted, if they are. */
  noted: ScannedObject | null = null
  /** The member that is being read; and, down to the depth of noted ones, where its value starts. */
  name = ''
  start = 0
  /** The count of commas and brackets there. */
  counted = 0
}

class Scanner {
  readonly #bytes: Buffer
  readonly #judged: JudgedNamesOfText
  readonly #lookedInto: readonly string[]
  readonly #watched: WatchedNames | null
  #isWatched = false
  /** True: every object is searched for names that stand twice. */
  readonly #isStrict: boolean
  readonly #isUtf8: boolean
  readonly #plain: PlainBytes
  readonly #names: OpenNames
  /** One for each depth, used again and again. */
  readonly #containers = [new OpenContainer()]
  #inside = this.#containers[0] as OpenContainer
  #depth = 0
  #next: number = VALUE
  #at = 0
  /** The offset at which a long string goes on; 0: none is being read. */
  #rest = 0
  /** True: something is wrong with that string, or may be. */
  #isDoubted = false
  #members = 0
  #opened = 0
  #commas = 0
  readonly #outermost = new ScannedObject()
  readonly #objects = new Map<string, ScannedObject>()
  readonly #inner = new Map<string, string[]>()
  readonly #repeated = new Set<string>()
  /** The places of the objects with more than 1,000 members. */
  readonly wideAt = new Set<number>()

  constructor(
    bytes: Buffer,
    judged: JudgedNamesOfText,
    lookedInto: readonly string[],
    watched: WatchedNames | null,
  ) {
    this.#bytes = bytes
    this.#watched = watched
    this.#judged = judged
    this.#lookedInto = lookedInto
    this.#isStrict = typeof judged === 'number'
    if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) {
      throw invalid('starts with a byte order mark', 0)
    }
    this.#isUtf8 = isUtf8(bytes)
    this.#plain = new PlainBytes(bytes)
    this.#names = new OpenNames(bytes)
  }

  /** The place of the outermost value. */
  get rootAt(): number {
    return (this.#containers[0] as OpenContainer).start
  }

  /** True: to make the value at once might hold up the loop. */
  get isDear(): boolean {
    const made = this.#members + this.#opened + this.#commas / 8
    return this.#isOdd || this.#bytes.length > MAX_READ_AT_ONCE || made > MAX_MADE_AT_ONCE
  }

  /** True: V8 alone does not tell what is to be known of the value. */
  get #isOdd(): boolean {
    return this.#outermost.escapedNames || this.wideAt.size > 0
  }

  /** Returns true at the end of the text. */
  step(): boolean {
    const bytes = this.#bytes
    const until = Math.min(this.#at + STEP_BYTES, bytes.length)
    if (this.#rest > 0) this.#string(this.#rest)
    for (let tokens = 0; tokens < STEP_TOKENS && this.#rest === 0; tokens += 1) {
      let at = this.#at
      while (at < until && isSpace(bytes[at])) at += 1
      this.#at = at
      if (at >= until) break
      this.#token(bytes[at] ?? 0)
    }
    return this.#at >= bytes.length
  }

  result(): JsonScan {
    if (this.#depth > 0 || this.#next !== COMMA_OR_END) throw this.#wrong()
    return new LazyScan(this.#bytes, this.rootAt, {
      spans: this.#outermost.spans,
      objects: this.#objects,
      inner: this.#inner,
      escapedNames: this.#outermost.escapedNames,
      repeated: this.#repeated,
      isWatched: this.#isWatched,
      wideAt: this.#isOdd ? this.wideAt : null,
    })
  }

  #token(byte: number): void {
    const next = this.#next
    if (next === COMMA_OR_END) this.#endOfValue(byte)
    else if (next === COLON_AFTER_NAME) this.#pass(byte === COLON, VALUE)
    else if (next === NAME || next === NAME_OR_END) {
      if (byte === CLOSE_BRACE && next === NAME_OR_END) this.#close()
      else this.#name(byte)
    } else if (byte === CLOSE_BRACKET && next === VALUE_OR_END) this.#close()
    else this.#startOfValue(byte)
  }

  /** Passes a byte that is `right`. */
  #pass(right: boolean, next: number): void {
    if (!right) throw this.#wrong()
    this.#at += 1
    this.#next = next
  }

  #name(byte: number): void {
    if (byte !== QUOTE) throw this.#wrong()
    const at = this.#at
    const inside = this.#inside
    const plainEnd = this.#isUtf8 ? this.#plain.nameEnd(at + 1) : -1
    const odd = plainEnd < 0 ? this.#oddName(at) : null
    const end = odd?.end ?? plainEnd
    this.#members += 1
    this.#bound(this.#members, MAX_SCAN_MEMBERS, 'members')
    inside.members += 1
    if (inside.members === MAX_NARROW + 1) this.wideAt.add(inside.at)
    if (this.#isStrict) this.#once(inside, at, end, odd)
    if (this.#watched !== null && !this.#isWatched)
      this.#isWatched = odd
        ? this.#watched.has(odd.name)
        : this.#watched.nameAt(this.#bytes, at + 1, end) !== undefined
    const isListed = inside.listed !== null && inside.members <= MAX_NARROW + 1
    if (inside.noted || isListed) {
      const name = odd?.name ?? nameText(this.#bytes, at + 1, end)
      if (isListed) inside.listed?.push(name)
      if (!this.#isStrict && this.#depth === 1 && this.#outermost.spans.has(name)) this.#again(name, at)
      inside.name = name
    }
    this.#at = end + 1
    this.#next = COLON_AFTER_NAME
  }

  /** Reads a name that is long, or written with an escape, or no name at all. */
  #oddName(at: number): OddName {
    const end = this.#pieceEnd(at + 1)
    const name = readStringText(this.#bytes, at + 1, end)
    if (this.#bytes[end] !== QUOTE || name.length > MAX_SCAN_TOKEN) {
      throw invalid(`has a member name longer than ${MAX_SCAN_TOKEN} characters`, at)
    }
    // A name as long as it is written is written plainly.
    const isEscaped = name.length !== end - at - 1 && this.#bytes.subarray(at, end).includes(BACKSLASH)
    if (isEscaped) {
      if (this.#isJudged(name)) throw invalid('escapes a character in the name of an outer member', at)
      this.#outermost.escapedNames = true
      const looked = this.#depth >= JUDGED_DEPTH ? this.#containers[JUDGED_DEPTH]?.noted : null
      if (looked) looked.escapedNames = true
    }
    return { name, end, isEscaped }
  }

  #isJudged(name: string): boolean {
    if (typeof this.#judged === 'number') return this.#depth <= this.#judged
    // Some readers end a name at a NUL, and drop half a surrogate pair.
    if (this.#depth <= JUDGED_DEPTH && (name.includes('\0') || !name.isWellFormed())) return true
    return this.#depth === 1 && this.#judged.has(name)
  }

  /** Refuses a name that stands in its object already. */
  #once(inside: OpenContainer, at: number, end: number, odd: OddName | null): void {
    const isNew = odd?.isEscaped
      ? this.#names.addEscaped(inside, odd.name)
      : this.#names.add(inside, at + 1, end)
    if (!isNew) throw twice(at)
  }

  /** A name stands twice in the outermost object. */
  #again(name: string, at: number): void {
    if (this.#isJudged(name)) throw twice(at)
    this.#repeated.add(name)
    // The last one counts.
    this.#inner.delete(name)
  }

  #startOfValue(byte: number): void {
    if (this.#depth <= JUDGED_DEPTH) {
      this.#inside.start = this.#at
      this.#inside.counted = this.#commas + this.#opened
    }
    if (byte === QUOTE) this.#string(this.#at + 1)
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
    const outer = this.#inside
    const at = this.#at
    if (this.#depth === MAX_SCAN_DEPTH) throw invalid(`is nested deeper than ${MAX_SCAN_DEPTH}`, at)
    this.#opened += 1
    this.#bound(this.#opened, MAX_SCAN_CONTAINERS, 'objects and arrays')
    this.#depth += 1
    const inside = this.#containers[this.#depth] ?? new OpenContainer()
    this.#containers[this.#depth] = inside
    this.#inside = inside
    inside.isList = isList
    inside.at = at
    inside.members = 0
    inside.listed = null
    inside.noted = null
    this.#names.begin(inside)
    if (!isList && this.#depth <= JUDGED_DEPTH) this.#openOuter(inside, outer)
    this.#pass(true, next)
  }

  /** Notes the members of the outermost object, and of those in it that are looked into or listed. */
  #openOuter(inside: OpenContainer, outer: OpenContainer): void {
    if (this.#depth === 1) inside.noted = this.#outermost
    else if (outer.noted && !this.#isStrict) {
      inside.listed = []
      this.#inner.set(outer.name, inside.listed)
    } else if (outer.noted && this.#lookedInto.includes(outer.name)) {
      inside.noted = new ScannedObject()
      this.#objects.set(outer.name, inside.noted)
    }
  }

  #numberOrWord(): void {
    const start = this.#at
    const end = scalarEnd(this.#bytes, start)
    if (end < 0 || end - start > MAX_SCAN_TOKEN) this.#oddScalar(start)
    else this.#put(end)
  }

  /** Reads what is no number and no word, or a very long one, to say what is wrong with it. */
  #oddScalar(start: number): void {
    const bytes = this.#bytes
    let end = start
    const most = Math.min(start + MAX_SCAN_TOKEN, bytes.length)
    while (end < most && ENDS_WORD[bytes[end] ?? 0] === 0) end += 1
    parseScalar(bytes.toString('latin1', start, end), start)
    this.#put(end)
  }

  #endOfValue(byte: number): void {
    if (this.#depth === 0) throw this.#wrong()
    const { isList } = this.#inside
    if (byte === (isList ? CLOSE_BRACKET : CLOSE_BRACE)) this.#close()
    else {
      this.#commas += 1
      this.#bound(this.#commas, MAX_SCAN_VALUES, 'values')
      this.#pass(byte === COMMA, isList ? VALUE : NAME)
    }
  }

  #close(): void {
    this.#names.end(this.#inside)
    this.#depth -= 1
    this.#inside = this.#containers[this.#depth] as OpenContainer
    this.#put(this.#at + 1)
  }

  #put(end: number): void {
    this.#at = end
    this.#rest = 0
    this.#next = COMMA_OR_END
    const { noted } = this.#inside
    if (noted === null || this.#depth > JUDGED_DEPTH) return
    const { name, start, at, counted } = this.#inside
    const from = this.#depth === 1 ? 0 : at
    const values = 1 + this.#commas + this.#opened - counted
    noted.spans.set(name, { start: start - from, end: end - from, values })
  }

  #bound(count: number, most: number, what: string): void {
    if (count > most) throw invalid(`holds more than ${most} ${what}`, this.#at)
  }

  #wrong(): Refusal {
    return invalid('is not valid JSON', this.#at)
  }
}

interface OddName {
  readonly name: string
  readonly end: number
  readonly isEscaped: boolean
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
