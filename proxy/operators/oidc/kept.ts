import type { MonotonicClock } from '../../../plugins/secrets/throttle.ts'

/** The time that an answer of the provider is kept. ms. */
const MAX_CACHE_AGE_MS = 3_600_000
/** The least time between two questions, where one failed or somebody wants a newer answer. ms. */
const MIN_REFETCH_MS = 60_000

interface TimedAnswer<T> {
  /** ms of the monotonic clock. */
  readonly at: number
  readonly value: Promise<T>
}

/**
 * An answer of the identity provider. It is asked for when it is first needed, kept for an hour, and asked for once
 * by all who wait for it. A failure is everybody's for a minute: strangers make no more requests than that.
 */
export class CachedAnswer<T> {
  readonly #ask: () => Promise<T>
  readonly #now: MonotonicClock
  #answer: TimedAnswer<T> | null = null
  #failed = false

  constructor(ask: () => Promise<T>, now: MonotonicClock) {
    this.#ask = ask
    this.#now = now
  }

  get(): Promise<T> {
    const keptMs = this.#failed ? MIN_REFETCH_MS : MAX_CACHE_AGE_MS
    return this.#answer && this.#now() - this.#answer.at < keptMs ? this.#answer.value : this.#asked()
  }

  /** As {@link get}, but newer than what it has given, unless that is less than a minute old: then null. */
  refetch(): Promise<T> | null {
    return this.#answer && this.#now() - this.#answer.at < MIN_REFETCH_MS ? null : this.#asked()
  }

  #asked(): Promise<T> {
    const answer: TimedAnswer<T> = { at: this.#now(), value: this.#ask() }
    this.#answer = answer
    this.#failed = false
    answer.value.catch(() => {
      if (this.#answer === answer) this.#failed = true
    })
    return answer.value
  }
}
