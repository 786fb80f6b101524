import type { Hangup } from '../../plugins/arrival.ts'
import { HolderPlaces } from '../../plugins/holder-places.ts'
import { Refusal } from '../../plugins/refusal.ts'

/** A reader of the ledger: its operator, and the signal for when it no longer waits. */
interface LedgerAsker {
  readonly actor: { readonly id: string }
  readonly hangup: Pick<Hangup, 'signal'>
}

/** Readings of the ledger under way at once, by one operator and by all: each holds rows in memory, or reads all of them. */
const LIMITS = {
  pages: { own: 4, all: 16 },
  exports: { own: 2, all: 6 },
  verifications: { own: 2, all: 4 },
  evidence: { own: 1, all: 2 },
}

/**
 * Limits how many readers of the ledger there are at once within this process, for each purpose by itself: an
 * operator who reads an export slowly keeps nobody from verifying, nor all the others from exporting
 * (docs/threats.md#h2).
 */
export class LedgerPlaces {
  readonly #places = {
    pages: new HolderPlaces(LIMITS.pages),
    exports: new HolderPlaces(LIMITS.exports),
    verifications: new HolderPlaces(LIMITS.verifications),
    evidence: new HolderPlaces(LIMITS.evidence),
  };

  /** Does work in a place of a caller. Refuses with `overloaded` if there is none. */
  async in<T>(purpose: keyof typeof LIMITS, caller: LedgerAsker, work: () => Promise<T>): Promise<T> {
    const leave = this.#take(purpose, caller)
    try {
      return await work()
    } finally {
      leave()
    }
  }

  /** Opens a text in pieces; its place is left when it is read to its end, or not read on. Refuses as above. */
  async reading(
    purpose: keyof typeof LIMITS,
    caller: LedgerAsker,
    open: () => Promise<AsyncIterable<Uint8Array>>,
  ): Promise<AsyncIterable<Uint8Array>> {
    const leave = this.#take(purpose, caller)
    const { signal } = caller.hangup
    // Pieces that nobody begins to read are not ended by their reader.
    signal.addEventListener('abort', leave, { once: true })
    const done = (): void => {
      signal.removeEventListener('abort', leave)
      leave()
    }
    try {
      return followed(await open(), done)
    } catch (error) {
      done()
      throw error
    }
  }

  #take(purpose: keyof typeof LIMITS, { actor }: LedgerAsker): () => void {
    const place = this.#places[purpose].take(actor.id)
    if (place.taken) return place.taken
    const message = `${place.held} readings of the ledger ${place.limit === 'own' ? 'of yours ' : ''}are under way. Try again when one is done.`
    throw new Refusal('overloaded', { message, headers: { 'retry-after': '5' } })
  }
}

async function* followed(
  pieces: AsyncIterable<Uint8Array>,
  done: () => void,
): AsyncGenerator<Uint8Array, void, void> {
  try {
    yield* pieces
  } finally {
    done()
  }
}
