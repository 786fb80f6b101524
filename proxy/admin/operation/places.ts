import { HolderPlaces } from '../../../plugins/holder-places.ts'
import { Refusal } from '../../../plugins/refusal.ts'

/** Readings of recorded calls by one operator, and by all, that are under way at once. Each has a thread. */
const LIMITS = { own: 2, all: 4 }

/**
 * Each purpose has places of its own, so that operators who may only look take none from those who change
 * something. `usage`: `admin.read` suffices.
 */
export type RehearsalPurpose = 'change' | 'rehearsal' | 'usage'

export class RehearsalPlaces {
  readonly #places: Readonly<Record<RehearsalPurpose, HolderPlaces>> = {
    change: new HolderPlaces(LIMITS),
    rehearsal: new HolderPlaces(LIMITS),
    usage: new HolderPlaces(LIMITS),
  }

  isFull(purpose: RehearsalPurpose): boolean {
    return this.#places[purpose].full
  }

  /** Does work in a place of an operator. Refuses with `overloaded` if there is none. */
  async run<T>(purpose: RehearsalPurpose, operator: string, work: () => Promise<T>): Promise<T> {
    const place = this.#places[purpose].acquire(operator)
    if (place.taken === null)
      throw new Refusal('overloaded', {
        message: `${place.held} ${place.limit === 'own' ? 'of your ' : ''}rehearsals are under way. Try again when one is done.`,
        headers: { 'retry-after': '5' },
      })
    try {
      return await work()
    } finally {
      place.taken()
    }
  }
}
