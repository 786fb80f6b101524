import { BYTES_AT_ONCE, type WorkSteps } from '../turns.ts'
import type { SecretRule } from './rules.ts'

/** Characters. A beginning that the end of one slice cuts is in the next one, with its first characters. */
const OVERLAP = 32
/** Finds ASCII that is written as an escape, at whatever level of a text in a text. */
const ESCAPED = /\\+u00([0-7][0-9a-fA-F])/g

const literal = (text: string): string => text.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&')

/** Looks for the beginnings of rules: a text without any holds no secret of them. */
export class BeginningSearch {
  readonly #any: RegExp

  constructor(rules: readonly SecretRule[]) {
    const begins = rules.flatMap((one) => one.begins)
    // One that another begins with finds that too.
    const least = begins.filter((text) => !begins.some((other) => other !== text && text.startsWith(other)))
    this.#any = new RegExp([...new Set(least)].toSorted().map(literal).join('|') || '(?!)')
  }

  isIn(text: string): boolean {
    return this.#any.test(text)
  }

  /** Looks for one in bytes of a text, also one that is escaped, in slices. */
  *steps(bytes: Buffer): WorkSteps<boolean> {
    for (let at = 0; at < bytes.length; at += BYTES_AT_ONCE) {
      const text = bytes.toString('latin1', Math.max(0, at - OVERLAP * MAX_ESCAPED), at + BYTES_AT_ONCE)
      if (this.#any.test(text)) return true
      if (text.includes('\\u00') && this.#any.test(text.replace(ESCAPED, characterOf))) return true
      yield
    }
    return false
  }
}

/** The bytes that a character may take, escaped in a text of a text of a text. */
const MAX_ESCAPED = 13

const characterOf = (_: string, digits: string): string => String.fromCharCode(Number.parseInt(digits, 16))
