import type { HangupSignal } from '../../../plugins/arrival.ts'
import { HolderPlaces, type PlaceAnswer } from '../../../plugins/holder-places.ts'
import { Refusal } from '../../../plugins/refusal.ts'

/** Readings of recorded calls by one operator, and by all, that are under way at once. Each has a thread. */
const REHEARSAL_LIMITS = { own: 2, all: 4 }

/**
 * Each purpose has places of its own, so that operators who may only look take none from those who change
 * something. `usage`: `admin.read` suffices.
 */
export type RehearsalPurpose = 'change' | 'rehearsal' | 'usage'

export class RehearsalPlaces {
  readonly #places: Readonly<Record<RehearsalPurpose, HolderPlaces>> = {
    change: new HolderPlaces(REHEARSAL_LIMITS),
    rehearsal: new HolderPlaces(REHEARSAL_LIMITS),
    usage: new HolderPlaces(REHEARSAL_LIMITS),
  }

  isFull(purpose: RehearsalPurpose): boolean {
    return this.#places[purpose].full
  }

  /** Does work in a place of an operator. Refuses with `overloaded` if there is none. */
  async run<T>(purpose: RehearsalPurpose, operator: string, work: () => Promise<T>): Promise<T> {
    const place = this.#places[purpose].acquire(operator)
    if (place.taken === null) throw tooMany('rehearsals', place)
    try {
      return await work()
    } finally {
      place.taken()
    }
  }
}

type FullPlaces = Extract<PlaceAnswer, { readonly taken: null }>

function tooMany(what: string, { held, limit }: FullPlaces): Refusal {
  const message = `${held} ${limit === 'own' ? 'of your ' : ''}${what} are under way. Try again when one is done.`
  return new Refusal('overloaded', { message, headers: { 'retry-after': '5' } })
}

interface LedgerRequester {
  readonly actor: { readonly id: string }
  readonly hangup: Pick<HangupSignal, 'signal'>
}

/**
 * Readings under way at once, by one operator and by all: each holds rows in memory, or reads all of them.
 */
const LIMITS = {
  pages: { own: 4, all: 16 },
  exports: { own: 2, all: 6 },
  verifications: { own: 2, all: 4 },
  evidence: { own: 1, all: 2 },
}

/** A reading that got less in its last minute gives its place up to a caller who finds none. Bytes. */
const MIN_BYTES_PER_MINUTE = 16 * 1_048_576

interface OpenReading {
  readonly pace: ReadingPace
  readonly end: () => void
}

/** The places of a purpose, and the readings that hold them. */
class PurposeReadings extends HolderPlaces {
  readonly open = new Set<OpenReading>()
}

/**
 * Limits concurrent readers of the ledger in this process, for each purpose by itself (docs/threats.md#h2).
 * While places are left, a reader may be as slow as he likes.
 */
export class LedgerPlaces {
  readonly #readings = {
    pages: new PurposeReadings(LIMITS.pages),
    exports: new PurposeReadings(LIMITS.exports),
    verifications: new PurposeReadings(LIMITS.verifications),
    evidence: new PurposeReadings(LIMITS.evidence),
  }
  readonly #now: () => number

  /** `now`: a clock that never goes back. ms. */
  constructor(now = () => performance.now()) {
    this.#now = now
  }

  /** Does work in a place of a caller. Refuses with `overloaded` if there is none. */
  async run<T>(purpose: keyof typeof LIMITS, caller: LedgerRequester, work: () => Promise<T>): Promise<T> {
    const leave = this.#take(purpose, caller)
    try {
      return await work()
    } finally {
      leave()
    }
  }

  /**
   * Opens a text in pieces; its place is left when it is read to its end, or not read on. Refuses as above.
   * Its signal fires when nobody waits, or another was given the place; the next piece then throws.
   */
  async stream(
    purpose: keyof typeof LIMITS,
    caller: LedgerRequester,
    read: (signal: AbortSignal) => Promise<AsyncIterable<Uint8Array>>,
  ): Promise<AsyncIterable<Uint8Array>> {
    const leave = this.#take(purpose, caller)
    const { open: readings } = this.#readings[purpose]
    const givenUp = new AbortController()
    const signal = AbortSignal.any([caller.hangup.signal, givenUp.signal])
    const reading: OpenReading = { pace: new ReadingPace(this.#now), end: () => givenUp.abort(TOO_SLOW) }
    readings.add(reading)
    const done = (): void => {
      signal.removeEventListener('abort', done)
      readings.delete(reading)
      leave()
    }
    // Pieces that nobody begins to read are not ended by their reader.
    signal.addEventListener('abort', done, { once: true })
    try {
      return followPieces(await read(signal), { signal, pace: reading.pace, done })
    } catch (error) {
      done()
      throw error
    }
  }

  #take(purpose: keyof typeof LIMITS, { actor }: LedgerRequester): () => void {
    const places = this.#readings[purpose]
    let place = places.acquire(actor.id)
    if (!place.taken && place.limit === 'all' && this.#endSlowest(purpose)) place = places.acquire(actor.id)
    if (place.taken) return place.taken
    throw tooMany('readings of the ledger', place)
  }

  /** Ends the slowest reading that is too slow. False: none is. */
  #endSlowest(purpose: keyof typeof LIMITS): boolean {
    let least = MIN_BYTES_PER_MINUTE
    let slowest: OpenReading | null = null
    for (const reading of this.#readings[purpose].open) {
      const { lastMinute } = reading.pace
      if (lastMinute === null || lastMinute >= least) continue
      least = lastMinute
      slowest = reading
    }
    slowest?.end()
    return slowest !== null
  }
}

const TOO_SLOW = new Error('the ledger was read too slowly while another reader was waiting')

interface PacedReading {
  readonly signal: AbortSignal
  readonly pace: ReadingPace
  readonly done: () => void
}

async function* followPieces(
  pieces: AsyncIterable<Uint8Array>,
  { signal, pace, done }: PacedReading,
): AsyncGenerator<Uint8Array, void, void> {
  try {
    for await (const piece of pieces) {
      signal.throwIfAborted()
      pace.read(piece.length)
      yield piece
    }
  } finally {
    done()
  }
}

const MINUTE_MS = 60_000

/** Counts the bytes read of a text in each minute. */
class ReadingPace {
  readonly #now: () => number
  #since: number
  #bytes = 0
  #last: number | null = null

  /** `now`: a clock that never goes back. ms. */
  constructor(now: () => number) {
    this.#now = now
    this.#since = now()
  }

  read(bytes: number): void {
    this.#turn()
    this.#bytes += bytes
  }

  /** The bytes of the last whole minute; null: there was none yet. */
  get lastMinute(): number | null {
    this.#turn()
    return this.#last
  }

  #turn(): void {
    const minutes = Math.floor((this.#now() - this.#since) / MINUTE_MS)
    if (minutes === 0) return
    this.#last = minutes === 1 ? this.#bytes : 0
    this.#bytes = 0
    this.#since += minutes * MINUTE_MS
  }
}
