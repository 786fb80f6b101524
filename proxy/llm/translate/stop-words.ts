import type { AnswerEvent } from './model/answer.ts'

/** Ends an answer at a stop word that the provider was not told of. Holds back what may be the beginning of one. */
export class StopWords {
  readonly #words: readonly string[]
  readonly #reach: number
  #held = ''
  #isText = false
  #isOver = false

  constructor(words: readonly string[]) {
    this.#words = words.filter((word) => word !== '')
    this.#reach = Math.max(0, ...this.#words.map(({ length }) => length)) - 1
  }

  pass(events: readonly AnswerEvent[]): readonly AnswerEvent[] {
    return this.#reach < 0 ? events : events.flatMap((event) => this.#one(event))
  }

  #one(event: AnswerEvent): readonly AnswerEvent[] {
    if (this.#isOver) return []
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
      this.#isOver = true
      const before = whole.slice(0, found.at)
      return [
        ...(before === '' ? [] : [{ kind: 'delta', text: before } as const]),
        { kind: 'close' },
        { kind: 'end', reason: 'stop_word', stopWord: found.word },
      ]
    }
    const shown = Math.max(0, whole.length - this.#reach)
    this.#held = whole.slice(shown)
    return shown === 0 ? [] : [{ kind: 'delta', text: whole.slice(0, shown) }]
  }
}
