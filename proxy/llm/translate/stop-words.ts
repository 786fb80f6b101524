import type { AnswerEvent } from './model/answer.ts'
import type { TokenLogprob } from './model/logprobs.ts'

/** The tokens of which the log probabilities are held back. An answer with more is broken. */
const MAX_HELD_TOKENS = 4_096

/**
 * Ends an answer at a stop word that the provider was not told of. Holds back what may be the beginning of one. Of
 * what comes after it the usage counts alone; the end follows when the provider's answer has ended.
 */
export class StopWords {
  readonly #words: readonly string[]
  readonly #reach: number
  #held = ''
  /** The log probabilities of tokens that are not shown yet, and how much of the text that is shown is of them. */
  #heldLogprobs: TokenLogprob[] = []
  #ahead = 0
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
    if (event.kind === 'delta' && this.#isText) return this.#delta(event.text, event.logprobs)
    const rest = shownDelta(this.#held, this.#heldLogprobs)
    this.#held = ''
    this.#heldLogprobs = []
    this.#ahead = 0
    return [...rest, event]
  }

  #delta(text: string, logprobs: readonly TokenLogprob[] = []): readonly AnswerEvent[] {
    this.#heldLogprobs.push(...logprobs)
    if (this.#heldLogprobs.length > MAX_HELD_TOKENS) throw new RangeError('tokens are stated of no text')
    const whole = this.#held + text
    const found = this.#words
      .map((word) => ({ word, at: whole.indexOf(word) }))
      .filter(({ at }) => at >= 0)
      .toSorted((one, other) => one.at - other.at)[0]
    if (found) {
      this.#end = { kind: 'end', reason: 'stop_word', stopWord: found.word }
      const before = whole.slice(0, found.at)
      return [...shownDelta(before, this.#take(before)), { kind: 'close' }]
    }
    const shown = Math.max(0, whole.length - this.#reach)
    this.#held = whole.slice(shown)
    const told = whole.slice(0, shown)
    return shownDelta(told, this.#take(told))
  }

  /** Takes what is stated of the tokens that are shown whole with this text. */
  #take(text: string): readonly TokenLogprob[] {
    this.#ahead += text.length
    let count = 0
    for (const { token } of this.#heldLogprobs) {
      if (token.length > this.#ahead) break
      this.#ahead -= token.length
      count += 1
    }
    return this.#heldLogprobs.splice(0, count)
  }
}

/** Tells of the end of a provider's answer. A broken one is whole up to the stop word. */
const isLast = ({ kind }: AnswerEvent): boolean => kind === 'end' || kind === 'broken'

const shownDelta = (text: string, logprobs: readonly TokenLogprob[]): readonly AnswerEvent[] =>
  text === '' && logprobs.length === 0
    ? []
    : [{ kind: 'delta', text, ...(logprobs.length > 0 && { logprobs }) }]
