import { type CallLimit, type LimitTerms, meterAt } from '../../limits/limit.ts'
import { MeterBook, type MeterReservation } from '../meters/meter-book.ts'

/** The windows of a limit whose meters are kept: rows may come a little out of order. */
const MAX_WINDOWS = 3

/**
 * The meters of one limit during a walk, by the arithmetic of the ledger's own. Memory by principals: those of windows
 * long over are forgotten.
 */
export class WalkedMeters {
  readonly #terms: LimitTerms & Pick<CallLimit, 'override'>
  readonly #books = new Map<string, MeterBook>()

  constructor(terms: LimitTerms & Pick<CallLimit, 'override'>) {
    this.#terms = terms
  }

  /** Makes the reservation of a call. `at`: its arrival, ms since the epoch. */
  reservation(who: string, took: number, at: number): MeterReservation {
    const { span, most, refill } = meterAt(this.#terms, at)
    const refuses = this.#terms.on === 'refuse'
    return {
      limit: '',
      who: this.#terms.each ? who : '',
      span,
      took,
      most,
      refuses,
      ...(refill && { refill }),
    }
  }

  hasRoom(reservation: MeterReservation): boolean {
    return this.#bookOf(reservation.span).misfit([reservation]) === null
  }

  /** Reserves, and returns how much of the meter is used then. */
  reserve(reservation: MeterReservation): number {
    this.#bookOf(reservation.span).apply([reservation], [])
    return this.#used(reservation)
  }

  /** Settles a reservation at an instant, and returns how much is used then. A window long over needs no settling. */
  settle(reservation: MeterReservation, charged: number, at: number): number {
    const { refill, span } = reservation
    if (!this.#books.has(span)) return 0
    const ended = { ...reservation, charged, ...(refill && { refill: { ...refill, at } }) }
    this.#bookOf(span).apply([], [ended])
    return this.#used(ended)
  }

  /** Asks for more than there can be: the refusal says how much is used. */
  #used(reservation: MeterReservation): number {
    const wish = { ...reservation, took: Number.MAX_SAFE_INTEGER, refuses: true }
    return this.#bookOf(reservation.span).misfit([wish])?.used ?? 0
  }

  #bookOf(span: string): MeterBook {
    const known = this.#books.get(span)
    if (known) return known
    const [oldest] = this.#books.keys()
    if (this.#books.size === MAX_WINDOWS && oldest !== undefined) this.#books.delete(oldest)
    const made = new MeterBook(() => undefined)
    this.#books.set(span, made)
    return made
  }
}
