import type { Monotonic } from '../../../plugins/secrets/throttle.ts'

/** The time that an answer of the provider is kept. ms. */
const KEPT_MS = 3_600_000
/** The least time between two questions, where one failed or somebody wants a newer answer. ms. */
const AGAIN_MS = 60_000

interface Answer<T> {
  /** ms of the monotonic clock. */
  readonly at: number
  readonly value: Promise<T>
}

/**
 * An answer of the identity provider. It is asked for when it is first needed, kept for an hour, and asked for once
 * by all who wait for it. A failure is everybody's for a minute: strangers make no more requests than that.
 */
export class Kept<T> {
  readonly #ask: () => Promise<T>
  readonly #now: Monotonic
  #answer: Answer<T> | null = null
  #failed = false

  constructor(ask: () => Promise<T>, now: Monotonic) {
    this.#ask = ask
    this.#now = now
  }

  get(): Promise<T> {
    const keptMs = this.#failed ? AGAIN_MS : KEPT_MS
    return this.#answer && this.#now() - this.#answer.at < keptMs ? this.#answer.value : this.#asked()
  }

  /** As {@link get}, but newer than what it has given, unless that is less than a minute old: then null. */
  anew(): Promise<T> | null {
    return this.#answer && this.#now() - this.#answer.at < AGAIN_MS ? null : this.#asked()
  }

  #asked(): Promise<T> {
    const answer: Answer<T> = { at: this.#now(), value: this.#ask() }
    this.#answer = answer
    this.#failed = false
    answer.value.catch(() => {
      if (this.#answer === answer) this.#failed = true
    })
    return answer.value
  }
}
