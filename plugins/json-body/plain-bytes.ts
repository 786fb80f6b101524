import { endianness } from 'node:os'
import { BACKSLASH, ENDS_WORD, QUOTE } from './bytes.ts'

/** Bytes of a name that is looked at here. */
const MAX_NAME = 64
const SPACE = 0x20
/** The lowest byte of a word stands first: only so is the first one found at once. */
const IS_LITTLE_ENDIAN = endianness() === 'LE'

/** 1: a quote, a backslash or a control character. */
const IS_SPECIAL = Uint8Array.from({ length: 256 }, (_, byte) =>
  Number(byte < SPACE || byte === QUOTE || byte === BACKSLASH),
)

export const isSpace = (byte: number | undefined): boolean =>
  byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09

/** Finds the bytes of JSON strings that do not stand for themselves. */
export class PlainBytes {
  readonly #bytes: Buffer
  /** Four bytes at a time; null until they are wanted. */
  #words: Int32Array | null = null
  /** The bytes of the first word that lie before the text. */
  readonly #skew: number

  constructor(bytes: Buffer) {
    this.#bytes = bytes
    this.#skew = bytes.byteOffset & 3
  }

  /**
   * Returns the place of the quote that ends the string which goes on at `start`; of a fault, if there is one
   * before; a place from `until` on, between two characters or escapes, if both come later.
   */
  stringEnd(start: number, until: number): number {
    const bytes = this.#bytes
    const skew = this.#skew
    this.#words ??= wordsOf(bytes, skew)
    const words = this.#words
    const last = IS_LITTLE_ENDIAN ? (until + skew) >> 2 : 0
    let at = start
    while (at < until) {
      let word = (at + skew) >> 2
      // Of the first word, only what begins here.
      let wanted = -1 << (((at + skew) & 3) << 3)
      let found = 0
      for (; word < last; word += 1) {
        const four = words[word] ?? 0
        const quotes = four ^ 0x22222222
        const slashes = four ^ 0x5c5c5c5c
        // A byte below its subtrahend borrows: its highest bit is set then, and was not before.
        found =
          (((four - 0x20202020) & ~four) |
            ((quotes - 0x01010101) & ~quotes) |
            ((slashes - 0x01010101) & ~slashes)) &
          wanted &
          0x80808080
        if (found !== 0) break
        wanted = -1
      }
      if (found !== 0) at = word * 4 - skew + ((31 - Math.clz32(found & -found)) >> 3)
      else
        for (at = Math.max(at, last * 4 - skew); at < until; at += 1)
          if (IS_SPECIAL[bytes[at] ?? 0] === 1) break
      const byte = bytes[at] ?? 0
      if (at >= until || (byte !== BACKSLASH && IS_SPECIAL[byte] === 1)) return at
      const length = byte === BACKSLASH ? escapeLength(bytes, at) : 1
      if (length === 0) return at
      // Where a byte before it borrowed, it was found and is plain.
      at += length
    }
    return at
  }

  /** Returns the place of the quote that ends a short and plain name; -1 if it is none. */
  nameEnd(start: number): number {
    const bytes = this.#bytes
    const until = Math.min(start + MAX_NAME, bytes.length)
    let at = start
    while (at < until && IS_SPECIAL[bytes[at] ?? 0] === 0) at += 1
    return at < until && bytes[at] === QUOTE ? at : -1
  }
}

function wordsOf({ buffer, byteOffset, length }: Buffer, skew: number): Int32Array {
  return new Int32Array(buffer, byteOffset - skew, (length + skew) >> 2)
}

/** Returns the length of the escape at `at`; 0 if it is none, or cut off. */
function escapeLength(bytes: Buffer, at: number): number {
  const letter = bytes[at + 1] ?? 0
  if (letter !== SMALL_U) return ESCAPED[letter] === 1 ? 2 : 0
  for (let place = at + 2; place < at + 6; place += 1) if (IS_HEX[bytes[place] ?? 0] === 0) return 0
  return 6
}

const SMALL_U = 0x75
const ESCAPED = lettersOf('"\\/bfnrt')
const IS_HEX = lettersOf('0123456789abcdefABCDEF')

function lettersOf(letters: string): Uint8Array {
  return Uint8Array.from({ length: 256 }, (_, byte) => Number(letters.includes(String.fromCharCode(byte))))
}

/** Bytes that are looked at one by one: a native search costs more than it saves. */
export const SHORT_SEARCH_BYTES = 48

/** Finds the quote that ends a string, else a place within `most` bytes in no escape or character. */
export function pieceEnd(bytes: Buffer, start: number, most: number): number {
  const limit = Math.min(start + most, bytes.length)
  const piece = limit === bytes.length ? bytes : bytes.subarray(0, limit)
  let at = start
  while (at < limit) {
    for (const stop = at + SHORT_SEARCH_BYTES; at < stop && at < limit; at += 1) {
      if (piece[at] === QUOTE) return at
      if (piece[at] === BACKSLASH) at += 1
    }
    const found = piece.indexOf(QUOTE, at)
    if (found < 0) break
    // No further back than where the search began, so each is counted once.
    if (slashesBefore(piece, at, found) % 2 === 0) return found
    at = found + 1
  }
  return divisionBefore(bytes, start, limit)
}

/** Counts the backslashes in a row that end at `at`. Looks no further back than to `from`. */
function slashesBefore(bytes: Buffer, from: number, at: number): number {
  let slashes = 0
  while (at - slashes > from && bytes[at - slashes - 1] === BACKSLASH) slashes += 1
  return slashes
}

function divisionBefore(bytes: Buffer, start: number, limit: number): number {
  // An escape has six bytes at most, so one that is open at the limit begins in the last five.
  const from = Math.max(start, limit - 5)
  const slash = from + bytes.subarray(from, limit).lastIndexOf(BACKSLASH)
  if (slash >= from && slashesBefore(bytes, start, slash) % 2 === 0) {
    const length = bytes[slash + 1] === SMALL_U ? 6 : 2
    if (slash + length > limit) return slash
  }
  return characterStart(bytes, limit)
}

/** The start of the UTF-8 character that the byte at `at` belongs to, if it is one. */
function characterStart(bytes: Buffer, at: number): number {
  let start = at
  while (start > at - 3 && ((bytes[start] ?? 0) & 0xc0) === 0x80) start -= 1
  return start
}

/** Names of callers are few, and most stand in every message: so many are known by their bytes. */
const KNOWN: string[] = Array.from({ length: 512 }, () => '')
/** Bytes. A longer name is read anew each time. */
const MAX_KNOWN = 64

/** Reads a name that is written without an escape, in valid UTF-8. */
export function nameText(bytes: Buffer, start: number, end: number): string {
  const length = end - start
  if (length > MAX_KNOWN) return bytes.toString('utf8', start, end)
  let hash = length
  for (let at = start; at < end; at += 1) hash = (Math.imul(hash, 31) + (bytes[at] ?? 0)) | 0
  const place = (hash ^ (hash >>> 9)) & (KNOWN.length - 1)
  const known = KNOWN[place] ?? ''
  if (known.length === length && isWrittenAt(known, bytes, start)) return known
  const name = bytes.toString('utf8', start, end)
  // In ASCII alone a letter is a byte.
  if (name.length === length) KNOWN[place] = name
  return name
}

function isWrittenAt(known: string, bytes: Buffer, start: number): boolean {
  for (let index = 0; index < known.length; index += 1) {
    if (known.charCodeAt(index) !== bytes[start + index]) return false
  }
  return true
}

/** Names of one object that are compared one by one. */
const FEW_NAMES = 16
/** The numbers that stand for a name: its hash, and where it is written. */
const NUMBERS = 3

/** The names of one object so far. */
export interface ObjectNames {
  /** The place of the first among those of all open objects. */
  firstName: number
  /** The names themselves, a character for a byte, once they are many, or one is written with an escape. */
  many: Set<string> | null
}

/** The names of all open objects of a text, by their bytes: none of them is made a text while they are few. */
export class OpenNames {
  readonly #bytes: Buffer
  readonly #named: number[] = []
  #count = 0

  constructor(bytes: Buffer) {
    this.#bytes = bytes
  }

  begin(object: ObjectNames): void {
    object.firstName = this.#count
    object.many = null
  }

  end({ firstName }: ObjectNames): void {
    this.#count = firstName
  }

  /** Adds a name that is written plainly. False: its object has it already. */
  add(object: ObjectNames, start: number, end: number): boolean {
    const bytes = this.#bytes
    if (object.many) return addTo(object.many, bytes.toString('latin1', start, end))
    let hash = end - start
    for (let at = start; at < end; at += 1) hash = (Math.imul(hash, 31) + (bytes[at] ?? 0)) & MAX_HASH
    const named = this.#named
    const count = this.#count
    for (let place = object.firstName; place < count; place += NUMBERS) {
      if (named[place] !== hash) continue
      if (bytes.compare(bytes, named[place + 1], named[place + 2], start, end) === 0) return false
    }
    named[count] = hash
    named[count + 1] = start
    named[count + 2] = end
    this.#count = count + NUMBERS
    if (count - object.firstName >= FEW_NAMES * NUMBERS) object.many = this.#namesOf(object)
    return true
  }

  /** Adds a name that is written with an escape. False: its object has it already. */
  addEscaped(object: ObjectNames, name: string): boolean {
    object.many ??= this.#namesOf(object)
    // Half a surrogate pair has no bytes of its own, and no byte is this character.
    return addTo(object.many, name.isWellFormed() ? Buffer.from(name).toString('latin1') : `\uffff${name}`)
  }

  #namesOf({ firstName }: ObjectNames): Set<string> {
    const names = new Set<string>()
    for (let place = firstName; place < this.#count; place += NUMBERS)
      names.add(this.#bytes.toString('latin1', this.#named[place + 1], this.#named[place + 2]))
    return names
  }
}

/** Numbers that V8 keeps as they are. */
const MAX_HASH = 0x3fff_ffff

function addTo(names: Set<string>, name: string): boolean {
  if (names.has(name)) return false
  names.add(name)
  return true
}

/** Returns the end of the number or word that begins at `start`; -1 if there is none, or something follows it. */
export function scalarEnd(bytes: Buffer, start: number): number {
  const first = bytes[start] ?? 0
  const end = first < SMALL_A ? numberEnd(bytes, start) : (WORDS.get(first)?.(bytes, start) ?? -1)
  return end === bytes.length || ENDS_WORD[bytes[end] ?? 0] === 1 ? end : -1
}

const SMALL_A = 0x61

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

/** More digits than a number may have: what follows them is not looked at. */
const MAX_DIGITS = 16_384

/** Returns the end of one digit or more, of {@link MAX_DIGITS} at most; -1 if there is none. */
function digitsEnd(bytes: Buffer, start: number): number {
  const most = start + MAX_DIGITS
  let at = start
  while (at < most && isDigit(bytes[at])) at += 1
  return at > start ? at : -1
}
