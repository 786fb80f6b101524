const SLOTS = 1_024
/** Longer texts are not kept. Bytes. */
const MAX_TEXT = 128

interface CachedText {
  readonly bytes: Uint8Array
  readonly text: string
}

/**
 * Makes texts of UTF-8, and gives one again that it has made of the same bytes lately: most columns have few values,
 * and comparing them takes a fraction of making a text. Holds 1,024 short texts at most.
 */
export class TextCache {
  readonly #slots: (CachedText | undefined)[] = Array.from({ length: SLOTS })

  text(bytes: Buffer, from: number, to: number): string {
    const length = to - from
    if (length > MAX_TEXT) return bytes.toString('utf8', from, to)
    const slot = slotOf(bytes, from, to)
    const known = this.#slots[slot]
    if (known && isSame(known.bytes, bytes, from, length)) return known.text
    const text = bytes.toString('utf8', from, to)
    this.#slots[slot] = { bytes: Uint8Array.prototype.slice.call(bytes, from, to), text }
    return text
  }
}

function slotOf(bytes: Uint8Array, from: number, to: number): number {
  let sum = to - from
  for (let at = Math.max(from, to - SAMPLED); at < to; at += 1) sum = (31 * sum + (bytes[at] ?? 0)) | 0
  return sum & (SLOTS - 1)
}

/** The last bytes of a text, by which its slot is found: names differ at their end. */
const SAMPLED = 8

function isSame(one: Uint8Array, bytes: Uint8Array, from: number, length: number): boolean {
  if (one.length !== length) return false
  for (let at = 0; at < length; at += 1) if (one[at] !== bytes[from + at]) return false
  return true
}
