import { AsyncLocalStorage } from 'node:async_hooks'
import type { LedgerEntry, LedgerUnit } from '../../../db/ledger/record/entry.ts'
import type { PeopleState } from '../../../db/people/states.ts'
import type { LedgerStatement, RowAssertion } from '../../../db/support/statement.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import type { Refusal } from '../../../plugins/refusal.ts'

/**
 * All that one request writes, with its rows: durable together before the answer is sent, or not at all. The
 * request reads through it, and so sees its own writes.
 */
export class PeopleUnit {
  readonly arrival: Arrival
  readonly #statements: LedgerStatement[] = []
  readonly #entries: LedgerEntry[] = []
  readonly #assertions: RowAssertion[] = []
  /** States by kind and digest as this request has left them; null: removed. */
  readonly #states = new Map<string, PeopleState | null>()
  /** Grants of which this request has removed all states. */
  readonly removedGrants = new Set<string>()
  /** True once the request uses up a code: if another one does at once, it is that one's. */
  usesCode = false
  /** The refusal that the answer is, in the place of the library's error; null: none. */
  refusal: Refusal | null = null

  constructor(arrival: Arrival) {
    this.arrival = arrival
  }

  write(...statements: readonly LedgerStatement[]): void {
    this.#statements.push(...statements)
  }

  record(...entries: readonly LedgerEntry[]): void {
    this.#entries.push(...entries)
  }

  assert(...assertions: readonly RowAssertion[]): void {
    this.#assertions.push(...assertions)
  }

  keep(state: PeopleState): void {
    this.#states.set(`${state.kind} ${state.idSha256}`, state)
  }

  drop(kind: string, idSha256: string): void {
    this.#states.set(`${kind} ${idSha256}`, null)
  }

  /** Finds a state that this request has written; null: it has removed it; undefined: neither. */
  kept(kind: string, idSha256: string): PeopleState | null | undefined {
    return this.#states.get(`${kind} ${idSha256}`)
  }

  /** Finds one by another digest, among those that this request has written. */
  keptBy(kind: string, matches: (state: PeopleState) => boolean): PeopleState | undefined {
    return [...this.#states.values()].find((state) => state?.kind === kind && matches(state)) ?? undefined
  }

  /** Ends the request with a refusal: the library would make an error of its own of it. */
  refuse(refusal: Refusal): never {
    this.refusal = refusal
    throw refusal
  }

  /** The unit of the ledger; null if nothing is to be written. */
  get whole(): LedgerUnit | null {
    if (this.#statements.length === 0 && this.#entries.length === 0) return null
    return { statements: this.#statements, entries: this.#entries, assertions: this.#assertions }
  }
}

const storage = new AsyncLocalStorage<PeopleUnit>()

/** Does work as part of a unit. */
export const withinUnit = <T>(unit: PeopleUnit, work: () => Promise<T>): Promise<T> => storage.run(unit, work)

/** The unit of the request under way. */
export function currentUnit(): PeopleUnit {
  const unit = storage.getStore()
  if (!unit) throw new Error('nothing is written outside of a request')
  return unit
}
