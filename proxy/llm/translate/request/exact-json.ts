import { randomBytes } from 'node:crypto'

/** Finds what V8 would write otherwise: long numbers, exponents, zeros at the end, and names that are numbers. */
const RISKY = /\d{16}|\d[eE][+-]?\d|\d\.\d*0(?!\d)|-0(?![\d.])|"\d+"\s*:/
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?|-?\d[\d.eE+-]*/gs

/**
 * JSON whose numbers keep their digits, and whose members keep their order, when it is written again. In a parsed
 * value a text that nobody can guess stands for each of them that V8 would write otherwise: {@link numberOf} reads it.
 */
export class ExactJson {
  // A text of the caller's must not become a number of ours.
  readonly #mark = `\uE000${randomBytes(12).toString('hex')}`
  #hasMarks = false

  /** Throws SyntaxError. */
  parse(text: string): unknown {
    if (!RISKY.test(text)) return JSON.parse(text)
    this.#hasMarks = true
    return JSON.parse(
      text.replace(TOKENS, (token, colon: string | undefined) => {
        if (token.startsWith('"'))
          return colon !== undefined && /^"\d/.test(token) ? `"${this.#mark}${token.slice(1)}` : token
        return String(Number(token)) === token ? token : `"${this.#mark}=${token}"`
      }),
    )
  }

  /** Writes a value that holds parts of parsed ones. */
  write(value: unknown): string {
    const written = JSON.stringify(value)
    if (!this.#hasMarks) return written
    // Also within a text that is JSON itself, whose quotes are escaped.
    const number = new RegExp(`\\\\*"${this.#mark}=([^"\\\\]*)\\\\*"`, 'g')
    return written.replace(number, '$1').replaceAll(this.#mark, '')
  }
}

/** Reads a number of a value that {@link ExactJson} has parsed; null: it is none. */
export function numberOf(value: unknown): number | null {
  if (typeof value === 'number') return value
  const [, digits] = typeof value === 'string' ? (MARKED_NUMBER.exec(value) ?? []) : []
  return digits === undefined ? null : Number(digits)
}

const MARKED_NUMBER = /^\uE000[\da-f]{24}=(-?\d[\d.eE+-]*)$/
