import { BACKSLASH, QUOTE } from './bytes.ts'

const SMALL_U = 0x75
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
