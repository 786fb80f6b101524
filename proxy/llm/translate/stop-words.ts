import type { AnswerEvent } from './model/answer.ts'

/**
 * Ends an answer at a stop word that the provider was not told of. Holds back what may be the beginning of one. Of
 * what comes after it the usage counts alone; the end follows when the provider's answer has ended.
 */
export class StopWords {
  readonly #words: readonly string[]
  readonly #reach: number
  #held = ''
  #isText = false
  /** The end at a stop word; null: none has come. */
  #end: AnswerEvent | null = null

  constructor(words: readonly string[]) {
    this.#words = words.filter((word) => word !== '')
    this.#reach = Math.max(0, ...this.#words.map(({ length }) => length)) - 1
  }

  /** True once a stop word has come. */
  get hasStopped(): boolean {
    return this.#end !== null
  }

  pass(events: readonly AnswerEvent[]): readonly AnswerEvent[] {
    return this.#reach < 0 ? events : events.flatMap((event) => this.#one(event))
  }

  #one(event: AnswerEvent): readonly AnswerEvent[] {
    if (this.#end) return event.kind === 'usage' ? [event] : isLast(event) ? [this.#end] : []
    if (event.kind === 'open') this.#isText = event.part.kind === 'text'
    if (event.kind === 'delta' && this.#isText) return this.#delta(event.text)
    const rest: readonly AnswerEvent[] = this.#held === '' ? [] : [{ kind: 'delta', text: this.#held }]
    this.#held = ''
    return [...rest, event]
  }

  #delta(text: string): readonly AnswerEvent[] {
    const whole = this.#held + text
    const found = this.#words
      .map((word) => ({ word, at: whole.indexOf(word) }))
      .filter(({ at }) => at >= 0)
      .toSorted((one, other) => one.at - other.at)[0]
    if (found) {
      this.#end = { kind: 'end', reason: 'stop_word', stopWord: found.word }
      const before = whole.slice(0, found.at)
      return [...(before === '' ? [] : [{ kind: 'delta', text: before } as const]), { kind: 'close' }]
    }
    const shown = Math.max(0, whole.length - this.#reach)
    this.#held = whole.slice(shown)
    return shown === 0 ? [] : [{ kind: 'delta', text: whole.slice(0, shown) }]
  }
}

/** Tells of the end of a provider's answer. A broken one is whole up to the stop word. */
const isLast = ({ kind }: AnswerEvent): boolean => kind === 'end' || kind === 'broken'
