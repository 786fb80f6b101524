const BACKSLASH = 0x5c
const PERCENT = 0x25
const AMPERSAND = 0x26
const SEMICOLON = 0x3b
const SPACE = 0x20
const [SMALL_U, SMALL_X] = [0x75, 0x78]

/** A longer reference of HTML names no character that a secret holds. Bytes. */
const MAX_REFERENCE = 12

/** The value of each hexadecimal digit; -1: it is none. */
const DIGITS = Int8Array.from({ length: 256 }, (_, byte) => {
  const value = Number.parseInt(String.fromCharCode(byte), 16)
  return Number.isNaN(value) ? -1 : value
})
/** True for the bytes b, f, n, r and t: after a backslash they stand for a character that no secret holds. */
const BLANKS = Array.from({ length: 256 }, (_, byte) => Buffer.from('bfnrt').includes(byte))
/** The five that every writer of HTML escapes. */
const NAMED: ReadonlyMap<string, number> = new Map([
  ['amp', 0x26],
  ['lt', 0x3c],
  ['gt', 0x3e],
  ['quot', 0x22],
  ['apos', 0x27],
])
const WORD = Array.from({ length: 256 }, (_, byte) => /[\da-zA-Z]/.test(String.fromCharCode(byte)))

/** Tells whether anything in a text may be an escape. */
export const mayHoldEscapes = (text: Buffer): boolean =>
  text.includes(BACKSLASH) || text.includes(PERCENT) || text.includes(AMPERSAND)

/**
 * Resolves one level of escapes in a text: those of JSON in whatever case (RFC 8259 §7), `\x3d` of
 * JavaScript, percent codes (RFC 3986 §2.1), and references of HTML. A character beyond Latin-1, or without a
 * mark, becomes a blank. A broken escape stays. Linear in the length, whatever is in it.
 */
export function withoutEscapes(text: Buffer): Buffer {
  const resolved = Buffer.allocUnsafe(text.length)
  let length = 0
  for (let at = 0; at < text.length; ) {
    let code = text[at] ?? 0
    let taken = 1
    if (code === BACKSLASH) {
      const next = text[at + 1] ?? SPACE
      const digits = next === SMALL_U ? 4 : 2
      const value = next === SMALL_U || next === SMALL_X ? hexadecimal(text, at + 2, digits) : -1
      code = value >= 0 ? printableOrSpace(value) : escapedByte(next)
      taken = value >= 0 ? 2 + digits : 2
    } else if (code === PERCENT) {
      const value = hexadecimal(text, at + 1, 2)
      if (value >= 0) {
        code = printableOrSpace(value)
        taken = 3
      }
    } else if (code === AMPERSAND) {
      taken = referenceLength(text, at)
      if (taken > 1) code = referencedCharacter(text, at, taken)
    }
    resolved[length] = code
    length += 1
    at += taken
  }
  return resolved.subarray(0, length)
}

const printableOrSpace = (code: number): number => (code > SPACE && code <= 0xff ? code : SPACE)
const escapedByte = (byte: number): number => (BLANKS[byte] ? SPACE : byte)

/** Reads hexadecimal digits; -1 if one of them is none. */
function hexadecimal(text: Buffer, start: number, digits: number): number {
  let value = 0
  for (let at = start; at < start + digits; at += 1) {
    const digit = DIGITS[text[at] ?? 0] ?? -1
    if (digit < 0) return -1
    value = value * 16 + digit
  }
  return value
}

/**
 * The length of the reference of HTML that begins at an ampersand; 1: it begins none, and stands for itself.
 */
function referenceLength(text: Buffer, start: number): number {
  for (let at = start + 2; at < start + MAX_REFERENCE; at += 1) {
    const byte = text[at] ?? 0
    if (byte === SEMICOLON) return at + 1 - start
    if (!WORD[byte]) return 1
  }
  return 1
}

/** The character that a reference stands for; a blank if it is unknown. */
function referencedCharacter(text: Buffer, start: number, length: number): number {
  const name = text.toString('latin1', start + 1, start + length - 1)
  const [, hexDigits, digits] = /^#(?:[xX]([\dA-Fa-f]+)|(\d+))$/.exec(name) ?? []
  if (digits !== undefined) return printableOrSpace(Number(digits))
  return hexDigits === undefined
    ? (NAMED.get(name) ?? SPACE)
    : printableOrSpace(Number.parseInt(hexDigits, 16))
}
