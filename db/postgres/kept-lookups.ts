import type { Compilable } from 'kysely'
import { LRUCache } from 'lru-cache'
import type { Pool } from 'pg'
import type { AuthorityChanges } from '../authority-moves.ts'
import type { PreparedLookup } from '../database.ts'
import { QUERY_TIMEOUT_MS } from './connection.ts'
import { type GenerationTracker, SELECT_GENERATION } from './generation.ts'
import type { PresenceSession } from './presence.ts'
import { holdsNul, rethrowQueryError, withinDeadline } from './reading.ts'

const MAX_ROWS = 20_000
/** Limits of the cache, in characters, and a little for each row. */
const MAX_SIZE = 32 * 1_048_576
const ROW_SIZE = 512

let preparedCount = 0

/**
 * Caches rows of look-ups until authority changes anywhere, while the session that hears of changes stands. A
 * look-up without a row is not cached. A row may be a moment old: a decision that allows asserts what it
 * rests on in its transaction, and one that refuses asks {@link current} first.
 */
export class LookupCache {
  readonly #pool: Pool
  readonly #presence: PresenceSession
  readonly #generation: GenerationTracker
  readonly #authority: AuthorityChanges
  readonly #rows = new LRUCache<string, object>({
    max: MAX_ROWS,
    maxSize: MAX_SIZE,
    sizeCalculation: (row, key) => ROW_SIZE + key.length + sizeOf(row),
  })
  /** When all was forgotten last. ms of `performance.now()`. */
  #forgottenAt = Number.NEGATIVE_INFINITY
  /** The question for the number that is not sent yet. Askers in the meantime share it. */
  #next: Promise<boolean> | null = null
  #asking: Promise<unknown> = Promise.resolve()

  constructor(
    pool: Pool,
    presence: PresenceSession,
    generation: GenerationTracker,
    authority: AuthorityChanges,
  ) {
    this.#pool = pool
    this.#presence = presence
    this.#generation = generation
    this.#authority = authority
    // This process's own too, which it hears of later than their author is answered.
    authority.onChange(() => this.#forget())
  }

  #forget(): void {
    this.#rows.clear()
    this.#forgottenAt = performance.now()
  }

  asked<R>(query: Compilable<R>): PreparedLookup<R> {
    const text = query.compile().sql
    preparedCount += 1
    const name = `lookup_${preparedCount}`
    return async (...parameters) => {
      if (holdsNul(parameters)) return undefined
      const asking = this.#pool.query({ name, text, values: [...parameters] })
      const { rows } = await withinDeadline(asking, performance.now() + QUERY_TIMEOUT_MS).catch(
        rethrowQueryError,
      )
      // The rows are those of the query that was compiled.
      return rows[0] as R | undefined
    }
  }

  /** The same, asked if nothing is cached. */
  kept<R extends object>(query: Compilable<R>): PreparedLookup<R> {
    const ask = this.asked(query)
    const name = preparedCount
    return (...parameters) => {
      if (!this.#presence.stands) return ask(...parameters)
      // No row is found by a text with a NUL in it, so that no two keys are alike.
      const key = [name, ...parameters].join('\0')
      // The row is of the query that has this name.
      const known = this.#rows.get(key) as R | undefined
      return known ?? this.#find(key, ask(...parameters))
    }
  }

  async #find<R extends object>(key: string, asked: ReturnType<PreparedLookup<R>>): Promise<R | undefined> {
    const { count } = this.#authority
    const row = await asked
    // A row that has changed since may have been read before its change.
    if (row && this.#authority.count === count) this.#rows.set(key, row)
    return row
  }

  /**
   * True if all answers since an instant (ms of `performance.now()`) still hold. Asks the database; if not,
   * the cache is empty by then. Rejects as look-ups do.
   */
  async current(since: number): Promise<boolean> {
    const same = await this.#ask()
    return same && this.#forgottenAt < since
  }

  #ask(): Promise<boolean> {
    // While the server says nothing, nobody waits for an answer to somebody else too.
    const turn = this.#presence.stands ? this.#asking : Promise.resolve()
    this.#next ??= turn.then(async () => {
      this.#next = null
      const before = this.#generation.latest
      const asking = this.#pool.query<{ generation: number }>(SELECT_GENERATION)
      const asked = withinDeadline(asking, performance.now() + QUERY_TIMEOUT_MS).catch(rethrowQueryError)
      this.#asking = asked.catch(() => {})
      const { rows } = await asked
      this.#generation.take(rows[0]?.generation ?? 0)
      return this.#generation.latest === before
    })
    return this.#next
  }
}

function sizeOf(row: object): number {
  let size = 0
  for (const value of Object.values(row)) size += typeof value === 'string' ? value.length : 8
  return size
}
