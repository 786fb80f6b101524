import { isRatePeriod, type LimitPeriod } from '../../limits/limit.ts'
import { isInstant } from '../canonical/instant.ts'
import { type MeterState, NEW_METER } from '../meters/meter-book.ts'
import { budgetSpan } from '../meters/span.ts'

/** The changes of meters whose state before them is kept: refusals may name an earlier one. */
export const MAX_PAST_METERS = 16_384
/** The time for which the meters of a window are followed after its end. ms. */
const GRACE_MS = 86_400_000

/** A meter as rows have counted it. */
export interface ReplayedMeter {
  state: MeterState
  /** The decisions that have not been settled. */
  open: number
  /** Earlier states by their numbers. */
  readonly past: Map<number, MeterState>
}

/** `[n, reserved, spent, tat, open]` of a meter. */
export type MeterMembers = readonly [n: number, reserved: number, spent: number, tat: number, open: number]

/** Meters by the span, and in it by the principal; empty: of all together. */
export type MeterRecord = Readonly<Record<string, Readonly<Record<string, MeterMembers>>>>

/** The last states of all meters, oldest first. */
export class PastMeters {
  readonly #places: { readonly meter: ReplayedMeter; readonly n: number }[] = []
  #next = 0

  /** Gives a meter its next state, and keeps the one before. */
  change(meter: ReplayedMeter, state: MeterState): void {
    const oldest = this.#places[this.#next]
    oldest?.meter.past.delete(oldest.n)
    meter.past.set(meter.state.n, meter.state)
    this.#places[this.#next] = { meter, n: meter.state.n }
    this.#next = (this.#next + 1) % MAX_PAST_METERS
    meter.state = state
  }
}

/** Returns a meter as it was after its change `n`; undefined: it is not kept. */
export function meterAfter({ state, past }: ReplayedMeter, n: number): MeterState | undefined {
  if (n === 0) return NEW_METER
  return n === state.n ? state : past.get(n)
}

/** The meters of one limit. Those of windows that are over are forgotten. */
export class MetersOfLimit {
  readonly #per: LimitPeriod | undefined
  readonly #spans = new Map<string, Map<string, ReplayedMeter>>()
  /** The last window that was forgotten. */
  #forgotten: string | null

  constructor(per: LimitPeriod | undefined, meters: MeterRecord = {}, forgotten: string | null = null) {
    this.#per = per
    this.#forgotten = forgotten
    for (const [span, all] of Object.entries(meters))
      for (const [who, [n, reserved, spent, tat, open]] of Object.entries(all))
        this.#add(span, who, { state: { n, reserved, spent, tat }, open, past: new Map() })
  }

  get forgotten(): string | null {
    return this.#forgotten
  }

  /** True if no call holds any of them. */
  get isIdle(): boolean {
    return [...this.#spans.values()].every(holdsNothing)
  }

  find(span: string, who: string): ReplayedMeter | undefined {
    return this.#spans.get(span)?.get(who)
  }

  /**
   * Finds a meter, or begins it; null: of a window that was forgotten. `at`: ms since the epoch; a window that begins
   * makes those be forgotten that ended a day before it.
   */
  take(span: string, who: string, at: number): ReplayedMeter | null {
    const found = this.find(span, who)
    if (found) return found
    if (!this.#spans.has(span)) {
      if (this.isForgotten(span)) return null
      this.#forget(at)
    }
    return this.#add(span, who, { state: NEW_METER, open: 0, past: new Map() })
  }

  isForgotten(span: string): boolean {
    return this.#forgotten !== null && span <= this.#forgotten && !this.#spans.has(span)
  }

  *[Symbol.iterator](): Generator<readonly [span: string, who: string, meter: ReplayedMeter]> {
    for (const [span, all] of this.#spans) for (const [who, meter] of all) yield [span, who, meter]
  }

  members(): MeterRecord {
    return Object.fromEntries(
      [...this.#spans].map(([span, all]) => [
        span,
        Object.fromEntries([...all].map(([who, { state, open }]) => [who, membersOf(state, open)])),
      ]),
    )
  }

  #add(span: string, who: string, meter: ReplayedMeter): ReplayedMeter {
    const all = this.#spans.get(span) ?? new Map<string, ReplayedMeter>()
    this.#spans.set(span, all.set(who, meter))
    return meter
  }

  #forget(at: number): void {
    const per = this.#per
    if (per === undefined || isRatePeriod(per)) return
    for (const [span, all] of this.#spans) {
      const until = isInstant(span) ? budgetSpan(per, Date.parse(span))?.until : undefined
      if (until === undefined || until + GRACE_MS > at || !holdsNothing(all)) continue
      this.#spans.delete(span)
      if (this.#forgotten === null || span > this.#forgotten) this.#forgotten = span
    }
  }
}

const membersOf = ({ n, reserved, spent, tat }: MeterState, open: number): MeterMembers => [
  ...([n, reserved, spent, tat] as const),
  open,
]

function holdsNothing(meters: ReadonlyMap<string, ReplayedMeter>): boolean {
  for (const { open } of meters.values()) if (open > 0) return false
  return true
}
