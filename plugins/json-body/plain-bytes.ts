import { endianness } from 'node:os'
import { BACKSLASH, QUOTE } from './bytes.ts'

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
