import { STEADY } from './span.ts'

/** Names a meter: a limit's count in a span. `who`: the ledger name of one principal; empty: all together. */
export interface MeterKey {
  readonly limit: string
  readonly who: string
  /** The beginning of its window, or what it has in place of one (./span.ts). */
  readonly span: string
}

/** The stored state of a meter. Integers within ±2^53, in the measure's unit. */
export interface MeterState {
  /** Counts its changes, from 1. */
  readonly n: number
  readonly reserved: number
  /** A steady meter: its level at `tat`, in units × ms of its period. */
  readonly spent: number
  /** The instant of a steady meter's level. ms since the epoch; 0 for any other. */
  readonly tat: number
}

export const NEW_METER: MeterState = { n: 0, reserved: 0, spent: 0, tat: 0 }

/** The refilling of a steady meter: `rate` units in `periodMs`, up to the instant `at` (ms since the epoch). */
export interface MeterRefill {
  readonly rate: number
  readonly periodMs: number
  readonly at: number
}

/** A wish to use so much of a meter. */
export interface MeterReservation extends MeterKey {
  readonly took: number
  /** The amount that may be used; the burst of a steady meter. */
  readonly most: number
  /** False: it is counted, however much there is already. */
  readonly refuses: boolean
  /** Present for a steady meter alone. */
  readonly refill?: MeterRefill
}

/** The end of a reservation: so much was used in fact. */
export interface MeterSettlement extends MeterKey {
  readonly took: number
  readonly charged: number
  /** Present for a steady meter alone; if it is absent there, `charged` is `took`. */
  readonly refill?: MeterRefill
}

/** The meter that a reservation did not fit into, as it was then. */
export interface MeterRefusal extends MeterKey {
  readonly n: number
  readonly used: number
  readonly spent: number
  readonly took: number
  readonly most: number
}

/** Writes a key as one text: no name has its separator. */
export const meterName = ({ limit, who, span }: MeterKey): string => `${limit}\0${who}\0${span}`

/**
 * The meters of one batch: read as they are asked for, changed in memory, and written by the engine before it
 * commits. Does NOT look at limits: what applies, and how much there is, stands in the reservations.
 */
export class MeterBook {
  readonly #read: (key: MeterKey) => MeterState | undefined
  readonly #meters = new Map<string, MeterState>()
  readonly #changed = new Map<string, MeterKey>()

  constructor(read: (key: MeterKey) => MeterState | undefined) {
    this.#read = read
  }

  /** Returns the first meter that has no room for its reservation; null: all of them fit. Changes nothing. */
  misfit(reservations: readonly MeterReservation[]): MeterRefusal | null {
    for (const wish of reservations) {
      const { limit, who, span, took, most, refuses } = wish
      const state = this.#of(wish)
      if (!refuses || meterHasRoom(state, wish)) continue
      const { used, spent } = usageOf(state, wish.refill)
      return { limit, who, span, n: state.n, used, spent, took, most }
    }
    return null
  }

  /**
   * Reserves and settles, and returns the numbers that the rows say of it: `n` and `used` of each reservation,
   * `n` of each settlement.
   */
  apply(
    reservations: readonly MeterReservation[],
    settlements: readonly MeterSettlement[],
  ): readonly number[] {
    return [
      ...reservations.flatMap((wish) => {
        const state = this.#of(wish)
        this.#set(wish, reserveOf(state, wish))
        return [state.n + 1, usageOf(state, wish.refill).used]
      }),
      ...settlements.map((ended) => {
        const state = this.#of(ended)
        this.#set(ended, settleIn(state, ended))
        return state.n + 1
      }),
    ]
  }

  /** The meters to be written, each with its state. */
  changed(): readonly (readonly [MeterKey, MeterState])[] {
    return [...this.#changed.values()].map((key) => [key, this.#of(key)] as const)
  }

  #of(key: MeterKey): MeterState {
    const name = meterName(key)
    const known = this.#meters.get(name)
    if (known) return known
    const state = this.#read(key) ?? NEW_METER
    this.#meters.set(name, state)
    return state
  }

  #set({ limit, who, span }: MeterKey, state: MeterState): void {
    const key = { limit, who, span }
    this.#meters.set(meterName(key), state)
    this.#changed.set(meterName(key), key)
  }
}

/** Has the rows of a unit say what each of its reservations found used. `numbers`: of {@link MeterBook.apply}. */
export function withUsage<Row extends object>(
  rows: readonly Row[],
  numbers: readonly number[],
  reservations: number,
): readonly (Row & { readonly used?: readonly number[] })[] {
  if (reservations === 0) return rows
  const used = numbers.slice(0, 2 * reservations).filter((_, place) => place % 2 === 1)
  return rows.map((row) => ({ ...row, used }))
}

/** Reads a meter: what is used with what is reserved, and what is spent alone. A steady one: both rounded up. */
export function usageOf(
  state: MeterState,
  refill: MeterRefill | undefined,
): { readonly used: number; readonly spent: number } {
  if (!refill) return { used: state.spent + state.reserved, spent: state.spent }
  const used = Math.ceil(levelAt(state, refill) / refill.periodMs)
  return { used, spent: used }
}

/** Tells whether a reservation fits. */
export function meterHasRoom(
  state: MeterState,
  { took, most, refill }: Pick<MeterReservation, 'took' | 'most' | 'refill'>,
): boolean {
  if (!refill) return state.spent + state.reserved + took <= most
  return levelAt(state, refill) + took * refill.periodMs <= most * refill.periodMs
}

/** Returns a meter after a reservation. */
export function reserveOf(
  state: MeterState,
  { took, refill }: Pick<MeterReservation, 'took' | 'refill'>,
): MeterState {
  if (!refill) return { ...state, n: state.n + 1, reserved: state.reserved + took }
  return poured(state, took, refill)
}

/** Returns a meter after a settlement. */
export function settleIn(
  state: MeterState,
  { span, took, charged, refill }: Omit<MeterSettlement, 'limit' | 'who'>,
): MeterState {
  const n = state.n + 1
  if (span !== STEADY)
    return { ...state, n, reserved: Math.max(0, state.reserved - took), spent: state.spent + charged }
  return refill ? poured(state, charged - took, refill) : { ...state, n }
}

/** Adds units to a steady meter, after what has drained from it until then. */
const poured = (state: MeterState, units: number, refill: MeterRefill): MeterState => ({
  n: state.n + 1,
  reserved: 0,
  spent: Math.max(0, levelAt(state, refill) + units * refill.periodMs),
  tat: Math.max(state.tat, refill.at),
})

/** A clock that steps back drains nothing, and gives nothing twice. */
const levelAt = ({ spent, tat }: MeterState, { rate, at }: MeterRefill): number =>
  Math.max(0, spent - rate * Math.max(0, at - tat))
