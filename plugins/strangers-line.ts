import type { Database } from '../db/database.ts'
import { findSession } from '../db/operators/sessions.ts'
import { pinnedPrincipal } from '../db/principals/pins.ts'
import { boundedCache } from '../db/support/bounded-cache.ts'
import { DatabaseUnavailable } from '../db/support/unavailable.ts'
import type { EditedTexts } from './pin/edited-texts.ts'
import { spiffePin } from './pin/spiffe.ts'
import { Refusal } from './refusal.ts'

/** Questions about names that nobody has heard of, under way at once: half of the connections that read. */
const MAX_UNDER_WAY = 4
/** Questions that may wait until one of these ends. */
const MAX_WAITING = 4_096
/** The time that one may wait: after a restart nobody is known, and all come at once. ms. */
const MAX_WAIT_MS = 20_000
/** Names that were found once. */
const MAX_KNOWN = 20_000

type LookupAnswer<Found> = Found | undefined | Promise<Found | undefined>

/**
 * The line for questions that anybody may cause: they have half of the connections to a database behind a
 * socket; known names and operators have the other half (docs/threats.md#h2). Does NOT remember what was
 * found, only that something was.
 */
export class StrangersLine {
  readonly #known = boundedCache<true>(MAX_KNOWN)
  readonly #waiting = new Set<PromiseWithResolvers<void>>()
  readonly #waitMs: number
  #underWay = 0
  /** ms of `performance.now()`. */
  #answeredAt = 0

  /** `waitMs`: default: {@link MAX_WAIT_MS}. */
  constructor(waitMs = MAX_WAIT_MS) {
    this.#waitMs = waitMs
  }

  /** Makes the same question, asked in line unless its key was found before. Refuses with `overloaded`. */
  fronting<Given extends readonly unknown[], Found>(
    keyOf: (...given: Given) => string,
    ask: (...given: Given) => LookupAnswer<Found>,
  ): (...given: Given) => LookupAnswer<Found> {
    return (...given) => {
      const key = keyOf(...given)
      return this.#known.get(key) ? ask(...given) : this.#inLine(key, () => ask(...given))
    }
  }

  async #inLine<Found>(key: string, ask: () => LookupAnswer<Found>): Promise<Found | undefined> {
    if (this.#underWay < MAX_UNDER_WAY) this.#underWay += 1
    else await this.#turn()
    const from = performance.now()
    try {
      const found = await ask()
      this.#answeredAt = performance.now()
      if (found !== undefined) this.#known.set(key, true)
      return found
    } catch (error) {
      // Not for one connection that broke.
      const isAway = error instanceof DatabaseUnavailable && this.#answeredAt < from
      if (isAway) this.#refuseAll(error)
      throw error
    } finally {
      this.#next()
    }
  }

  /** Resolves once this question gets the place of one that has ended. */
  async #turn(): Promise<void> {
    if (this.#waiting.size >= MAX_WAITING) throw tooLong()
    const turn = Promise.withResolvers<void>()
    this.#waiting.add(turn)
    const timer = setTimeout(() => {
      this.#waiting.delete(turn)
      turn.reject(tooLong())
    }, this.#waitMs)
    try {
      await turn.promise
    } finally {
      clearTimeout(timer)
    }
  }

  #next(): void {
    const [first] = this.#waiting
    if (!first) {
      this.#underWay -= 1
      return
    }
    this.#waiting.delete(first)
    first.resolve()
  }

  /** They would wait as long, for the same. */
  #refuseAll(error: DatabaseUnavailable): void {
    for (const turn of this.#waiting) turn.reject(error)
    this.#waiting.clear()
  }
}

/** Makes the questions to a database that anybody may cause; only one behind a socket is asked in line. */
export function strangerLookups(database: Database, edited: Pick<EditedTexts, 'note'>) {
  const line = new StrangersLine()
  const ofSpiffe = spiffePin(database, edited)
  const ofSession = (digest: string) => findSession(database, digest)
  if (database.engine === 'sqlite')
    return {
      pinned: (how?: 'asked') => pinnedPrincipal(database, how),
      bySpiffeId: ofSpiffe,
      session: ofSession,
    }
  const itself = (name: string): string => name
  // One name for both: a principal known by the SPIFFE id of a certificate is pinned by none.
  const bySpiffeId = line.fronting(({ thumbprint }) => thumbprint, ofSpiffe)
  const session = line.fronting(itself, ofSession)
  return {
    pinned: (how?: 'asked') => line.fronting(itself, pinnedPrincipal(database, how)),
    bySpiffeId: async (...given: Parameters<typeof ofSpiffe>) => bySpiffeId(...given),
    session: async (digest: string) => session(digest),
  }
}

const tooLong = (): Refusal => new Refusal('overloaded', { headers: { 'retry-after': '1' } })
