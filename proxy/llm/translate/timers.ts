/** ms. The last events of an answer wait so long for what a provider has yet to say after its reason to end. */
export const MAX_LAST_WAIT_MS = 2_000
/** ms. A caller hears something at least so often: clients and proxies in between cut what is silent. */
export const MAX_SILENCE_MS = 15_000

/** Measures time, and calls back. */
export interface AnswerClock {
  /** ms, of any beginning. */
  readonly now: () => number
  /** Calls back once after so many ms. Returns what calls it off. */
  readonly after: (ms: number, call: () => void) => () => void
}

const SYSTEM: AnswerClock = {
  now: () => performance.now(),
  after: (ms, call) => {
    const timer = setTimeout(call, ms)
    return () => clearTimeout(timer)
  },
}

interface TimedActions {
  /** Writes a sign of life. */
  readonly ping: () => void
  /** Ends the answer with what is there of it. */
  readonly end: () => void
}

/** Watches a stream that is written: after a silence it pings, and it ends one whose provider does not end it. */
export class AnswerTimers {
  readonly #actions: TimedActions
  readonly #clock: AnswerClock
  #wroteAt: number
  #stopSilence: () => void
  #stopEnd: (() => void) | null = null

  constructor(actions: TimedActions, clock: AnswerClock = SYSTEM) {
    this.#actions = actions
    this.#clock = clock
    this.#wroteAt = clock.now()
    this.#stopSilence = clock.after(MAX_SILENCE_MS, () => this.#silent())
  }

  /** Notes that something was written. */
  wrote(): void {
    this.#wroteAt = this.#clock.now()
  }

  /** Ends the answer after the last wait. Called again, it changes nothing. */
  endSoon(): void {
    this.#stopEnd ??= this.#clock.after(MAX_LAST_WAIT_MS, () => this.#actions.end())
  }

  stop(): void {
    this.#stopSilence()
    this.#stopEnd?.()
  }

  // One timer looks back when it fires: to begin it again with each event would cost each event.
  #silent(): void {
    const silentMs = this.#clock.now() - this.#wroteAt
    const isSilent = silentMs >= MAX_SILENCE_MS
    if (isSilent) {
      this.wrote()
      this.#actions.ping()
    }
    this.#stopSilence = this.#clock.after(MAX_SILENCE_MS - (isSilent ? 0 : silentMs), () => this.#silent())
  }
}
