import type { AnswerEvent, AnswerPart } from './model/answer.ts'
import { sizeOfLogprobs, type TokenLogprob } from './model/logprobs.ts'

/** Characters of parts that wait. An answer with more is broken. */
const MAX_KEPT = 1024 * 1024
const MAX_PARTS = 10_000
const MAX_CALLS = 128

interface KeptPart {
  readonly part: AnswerPart
  text: string
  readonly logprobs: TokenLogprob[]
  isClosed: boolean
  sealed: string | null
}

/** Puts parts that come interleaved one after the other: the first open one goes on, others wait until it ends. */
export class PartSequencer {
  readonly #out: AnswerEvent[]
  readonly #waiting = new Map<string, KeptPart>()
  #current: { readonly key: string; readonly kind: AnswerPart['kind'] } | null = null
  #kept = 0
  #parts = 0
  calls = 0

  /** `out`: gets the events. */
  constructor(out: AnswerEvent[]) {
    this.#out = out
  }

  get current(): { readonly key: string; readonly kind: AnswerPart['kind'] } | null {
    return this.#current
  }

  /** Characters of the parts that wait. */
  get kept(): number {
    return this.#kept
  }

  has(key: string): boolean {
    return this.#current?.key === key || this.#waiting.has(key)
  }

  /** Throws RangeError for too many parts. */
  open(key: string, part: AnswerPart): void {
    this.#parts += 1
    if (part.kind === 'call') this.calls += 1
    if (this.#parts > MAX_PARTS || this.calls > MAX_CALLS)
      throw new RangeError('the answer has too many parts')
    if (this.#current) this.#waiting.set(key, { part, text: '', logprobs: [], isClosed: false, sealed: null })
    else this.#begin(key, part)
  }

  /** Throws RangeError if more than 1 MiB waits. */
  add(key: string, text: string, logprobs: readonly TokenLogprob[] = []): void {
    if (text === '' && logprobs.length === 0) return
    const kept = this.#waiting.get(key)
    if (kept) {
      kept.text += text
      kept.logprobs.push(...logprobs)
      this.#kept += text.length + sizeOfLogprobs(logprobs)
      if (this.#kept > MAX_KEPT) throw new RangeError('more than 1 MiB of the answer came out of its order')
    } else if (this.#current?.key === key) this.#out.push(deltaOf(text, logprobs))
  }

  close(key: string, sealed: string | null = null): void {
    const kept = this.#waiting.get(key)
    if (kept) {
      kept.isClosed = true
      kept.sealed = sealed
    } else if (this.#current?.key === key) {
      this.#end(sealed)
      this.#goOn(false)
    }
  }

  /** Ends all parts. */
  finish(): void {
    if (this.#current) this.#end(null)
    this.#goOn(true)
  }

  #begin(key: string, part: AnswerPart): void {
    this.#current = { key, kind: part.kind }
    this.#out.push({ kind: 'open', part })
  }

  #end(sealed: string | null): void {
    this.#current = null
    this.#out.push({ kind: 'close', ...(sealed !== null && { sealed }) })
  }

  #goOn(isAll: boolean): void {
    for (const [key, { part, text, logprobs, isClosed, sealed }] of this.#waiting) {
      this.#waiting.delete(key)
      this.#kept -= text.length + sizeOfLogprobs(logprobs)
      this.#begin(key, part)
      if (text !== '') this.#out.push(deltaOf(text, logprobs))
      if (!isClosed && !isAll) return
      this.#end(sealed)
    }
  }
}

const deltaOf = (text: string, logprobs: readonly TokenLogprob[]): AnswerEvent =>
  logprobs.length === 0 ? { kind: 'delta', text } : { kind: 'delta', text, logprobs }
