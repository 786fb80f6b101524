/** The part of all time that is left to handshakes while everything else takes the rest. */
const MIN_SHARE = 0.1
const SPARE = 0.05
/** The time that they may take at once after a quiet spell. ms. */
const BURST_MS = 100
/** The time over which the loop's load is measured. ms. */
const WINDOW_MS = 100

type LoopUtilization = ReturnType<typeof performance.eventLoopUtilization>
/** A measurement of Node's: since the start, or between two. */
export type MeasureLoad = (later?: LoopUtilization, earlier?: LoopUtilization) => LoopUtilization

const measureLoad: MeasureLoad = (later, earlier) => performance.eventLoopUtilization(later, earlier)

/**
 * The time that handshakes may take of the loop: the rest of everything else, and a tenth at least
 * (docs/threats.md#a1). Unused time is saved up, to a tenth of a second.
 */
export class HandshakeShare {
  readonly #measure: MeasureLoad
  /** ms. Below zero if the last one took longer than there was left. */
  #left = BURST_MS
  #share = 1
  #filledAt: number
  /** Taken since the last measurement. ms. */
  #taken = 0
  #measured: { readonly at: number; readonly load: LoopUtilization }

  /** `now`: ms of a clock that only goes forward. */
  constructor(now: number, measure = measureLoad) {
    this.#measure = measure
    this.#filledAt = now
    this.#measured = { at: now, load: measure() }
  }

  /** Returns the time until there is some left: 0 if there is. ms. `others`: true if they wait already. */
  waitMs(now: number, others: boolean): number {
    if (now - this.#measured.at >= WINDOW_MS) this.#lookAtLoad(now)
    const share = others ? MIN_SHARE : this.#share
    this.#left = Math.min(BURST_MS, this.#left + (now - this.#filledAt) * share)
    this.#filledAt = now
    return this.#left > 0 ? 0 : Math.max(1, -this.#left / share)
  }

  charge(ms: number): void {
    this.#left -= ms
    this.#taken += ms
  }

  #lookAtLoad(now: number): void {
    const load = this.#measure()
    const { active, idle } = this.#measure(load, this.#measured.load)
    const others = active + idle > 0 ? (active - this.#taken) / (active + idle) : 0
    this.#share = Math.max(MIN_SHARE, 1 - SPARE - others)
    this.#taken = 0
    this.#measured = { at: now, load }
  }
}
