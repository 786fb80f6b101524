import { LRUCache } from 'lru-cache'
import { type MeterRefusal, type MeterReservation, meterName } from '../../db/ledger/meters/meter-book.ts'
import { STEADY, UNDER_WAY } from '../../db/ledger/meters/span.ts'

/** Meters that are remembered: the latest. */
const MAX_METERS = 10_000

/**
 * The meters that are used up by what is spent alone: until their window ends or limits change no call fits, and the
 * database is not asked (docs/threats.md#limits). Of this process.
 */
export class KnownFull {
  readonly #meters = new LRUCache<string, { readonly over: MeterRefusal; readonly rulesRevision: number }>({
    max: MAX_METERS,
  })

  /** Remembers a meter that had no room. One that drains or that waits for calls under way is not full for long. */
  note(over: MeterRefusal, rulesRevision: number): void {
    if (over.span === STEADY || over.span === UNDER_WAY || over.spent < over.most) return
    this.#meters.set(meterName(over), { over, rulesRevision })
  }

  /**
   * Returns the meter as it was when it was found full, for another call; undefined: it is not known to have no room for
   * this one. An override that has ended since may have made some.
   */
  find(wish: MeterReservation, rulesRevision: number): MeterRefusal | undefined {
    const known = this.#meters.get(meterName(wish))
    const { took, most } = wish
    if (known?.rulesRevision !== rulesRevision || known.over.spent + took <= most) return undefined
    return { ...known.over, took, most }
  }
}
