const BACKSLASH = 0x5c
const PERCENT = 0x25
const AMPERSAND = 0x26
const SEMICOLON = 0x3b
const SPACE = 0x20
const HASH = 0x23
const EQUALS = 0x3d
/** The hexadecimal digits after a backslash and one of these letters: u, U, x. Or any number of them in braces. */
const ESCAPED_DIGITS: ReadonlyMap<number, number> = new Map([
  [0x75, 4],
  [0x55, 8],
  [0x78, 2],
])
const [OPEN_BRACE, CLOSE_BRACE] = [0x7b, 0x7d]
const [ZERO, THREE, SEVEN] = [0x30, 0x33, 0x37]

/** A longer reference of HTML names no character that a secret holds. Bytes. */
const MAX_REFERENCE = 12

/** The value of each hexadecimal digit; -1: it is none. */
const DIGITS = Int8Array.from({ length: 256 }, (_, byte) => {
  const value = Number.parseInt(String.fromCharCode(byte), 16)
  return Number.isNaN(value) ? -1 : value
})
/** True for the bytes b, f, n, r and t: after a backslash they stand for a character that no secret holds. */
const BLANKS = Array.from({ length: 256 }, (_, byte) => Buffer.from('bfnrt').includes(byte))
/** The five that every writer of HTML escapes, and those of other characters of secrets. */
const NAMED: ReadonlyMap<string, number> = new Map(
  Object.entries({
    ...{ amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", AMP: '&', LT: '<', GT: '>', QUOT: '"' },
    ...{ sol: '/', bsol: '\\', plus: '+', equals: '=', lowbar: '_', UnderBar: '_', period: '.', colon: ':' },
    ...{ num: '#', excl: '!', dollar: '$', percnt: '%', ast: '*', midast: '*', comma: ',', semi: ';' },
    ...{ lpar: '(', rpar: ')', lsqb: '[', lbrack: '[', rsqb: ']', rbrack: ']', lcub: '{', lbrace: '{' },
    ...{ rcub: '}', rbrace: '}', quest: '?', commat: '@', Hat: '^', grave: '`', vert: '|', verbar: '|' },
  }).map(([name, character]) => [name, character.charCodeAt(0)]),
)
const WORD = Array.from({ length: 256 }, (_, byte) => /[\da-zA-Z]/.test(String.fromCharCode(byte)))

/** Tells whether anything in a text may be an escape. */
export const mayHoldEscapes = (text: Buffer): boolean =>
  text.includes(BACKSLASH) || text.includes(PERCENT) || text.includes(AMPERSAND)

/** The way that a text has been gone, and that its writing has. */
export interface TextPlace {
  at: number
  length: number
}

/** Writes a text from a place on into `into`, in another form, up to the first place not before `until`. */
export type TextRewriter = (text: Buffer, into: Buffer, place: TextPlace, until: number) => void

/** Bytes: an escape is no longer. */
export const MAX_ESCAPE = 20

/**
 * Resolves one level of escapes in a text: those of JSON in whatever case (RFC 8259 §7), `\x3d`, `\u{3d}`,
 * `\U0000003d` and `\075` of programming languages, percent codes (RFC 3986 §2.1), and references of HTML. A
 * character beyond Latin-1, or without a mark, becomes a blank. A broken escape stays. Linear.
 */
export const resolveEscapes: TextRewriter = (text, into, place, until) => {
  let { at, length } = place
  while (at < until) {
    let code = text[at] ?? 0
    let taken = 1
    if (BEGINS_ESCAPE[code] === 1) {
      const short = code === BACKSLASH ? (SHORT_ESCAPES[text[at + 1] ?? 0] ?? 0) : 0
      if (short > 0) {
        taken = 2
        code = short
      } else if (code === BACKSLASH) {
        taken = escapeLength(text, at)
        code = taken > 2 ? escapedCharacter(text, at, taken) : escapedByte(text[at + 1] ?? SPACE)
      } else if (code === PERCENT) {
        const value = hexadecimal(text, at + 1, 2)
        if (value >= 0) {
          code = printableOrSpace(value)
          taken = 3
        }
      } else {
        taken = referenceLength(text, at)
        if (taken > 1) code = referencedCharacter(text, at, taken)
      }
    }
    into[length] = code
    length += 1
    at += taken
  }
  place.at = at
  place.length = length
}

/** The bytes that these stand for after a backslash; 0: another byte tells. */
const SHORT_ESCAPES = Uint8Array.from({ length: 256 }, (_, byte) =>
  ESCAPED_DIGITS.has(byte) || (byte >= ZERO && byte <= THREE) ? 0 : BLANKS[byte] ? SPACE : byte,
)
const BEGINS_ESCAPE = Uint8Array.from({ length: 256 }, (_, byte) =>
  Number(byte === BACKSLASH || byte === PERCENT || byte === AMPERSAND),
)

const printableOrSpace = (code: number): number => (code > SPACE && code <= 0xff ? code : SPACE)
const escapedByte = (byte: number): number => (BLANKS[byte] ? SPACE : byte)

/** Removes the blanks of a text. */
export const removeBlanks: TextRewriter = (text, into, place, until) => {
  let { at, length } = place
  for (; at < until; at += 1) {
    const code = text[at] ?? 0
    into[length] = code
    if (code > SPACE) length += 1
  }
  place.at = at
  place.length = length
}

/** Removes the blanks of a text, and what breaks the lines of quoted-printable (RFC 2045 §6.7). */
export const removeQuotedBlanks: TextRewriter = (text, into, place, until) => {
  let { at, length } = place
  for (; at < until; at += 1) {
    let code = text[at] ?? 0
    if (code === EQUALS) {
      if ((text[at + 1] ?? SPACE) <= SPACE) continue
      const value = hexadecimal(text, at + 1, 2)
      if (value >= 0) {
        code = printableOrSpace(value)
        at += 2
        // It stays, also as a blank.
        into[length] = code
        length += 1
        continue
      }
    }
    into[length] = code
    if (code > SPACE) length += 1
  }
  place.at = at
  place.length = length
}

/** The length of the escape that begins at a backslash: 2 unless digits follow. */
function escapeLength(text: Buffer, start: number): number {
  const next = text[start + 1] ?? SPACE
  const digits = ESCAPED_DIGITS.get(next)
  if (digits !== undefined) {
    if (text[start + 2] !== OPEN_BRACE) return hexadecimal(text, start + 2, digits) < 0 ? 2 : 2 + digits
    const end = text.subarray(start + 3, start + 3 + MAX_REFERENCE).indexOf(CLOSE_BRACE)
    return end > 0 && hexadecimal(text, start + 3, end) >= 0 ? end + 4 : 2
  }
  return next <= THREE && isOctal(next) && isOctal(text[start + 2]) && isOctal(text[start + 3]) ? 4 : 2
}

const isOctal = (byte = 0): boolean => byte >= ZERO && byte <= SEVEN

/** The character of an escape with digits. */
function escapedCharacter(text: Buffer, start: number, length: number): number {
  if (isOctal(text[start + 1]))
    return printableOrSpace(Number.parseInt(text.toString('latin1', start + 1, start + 4), 8))
  const braces = text[start + 2] === OPEN_BRACE ? 1 : 0
  return printableOrSpace(hexadecimal(text, start + 2 + braces, length - 2 - 2 * braces))
}

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

/** The length of the reference of HTML that begins at an ampersand; 1: it stands for itself. */
function referenceLength(text: Buffer, start: number): number {
  const isNumber = text[start + 1] === HASH
  const isHex = isNumber && HEX_MARKS.includes(text[start + 2] ?? 0)
  const first = start + 1 + Number(isNumber) + Number(isHex)
  let at = first
  while (at < start + MAX_REFERENCE && isPartOf(text[at] ?? 0, isNumber, isHex)) at += 1
  if (at === first) return 1
  if (text[at] === SEMICOLON) return at + 1 - start
  return isNumber ? at - start : 1
}

const HEX_MARKS: readonly number[] = [0x78, 0x58]

function isPartOf(byte: number, isNumber: boolean, isHex: boolean): boolean {
  if (!isNumber) return WORD[byte] ?? false
  const digit = DIGITS[byte] ?? -1
  return digit >= 0 && (isHex || digit < 10)
}

/** The character that a reference stands for; a blank if it is unknown. */
function referencedCharacter(text: Buffer, start: number, length: number): number {
  const name = text.toString('latin1', start + 1, start + length).replace(/;$/, '')
  const [, hexDigits, digits] = /^#(?:[xX]([\dA-Fa-f]+)|(\d+))$/.exec(name) ?? []
  if (digits !== undefined) return printableOrSpace(Number(digits))
  return hexDigits === undefined
    ? (NAMED.get(name) ?? SPACE)
    : printableOrSpace(Number.parseInt(hexDigits, 16))
}
