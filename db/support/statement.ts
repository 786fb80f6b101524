import type { CompiledQuery } from 'kysely'

/** One write, compiled. `changes`: how many rows it must change, else the whole unit is rolled back. */
export interface LedgerStatement {
  readonly sql: string
  readonly parameters: readonly unknown[]
  readonly changes?: number
  /**
   * Set if it changes nobody's authority. A `claim` (db/single-uses.ts) has a digest and an instant, and many
   * may be made at once.
   */
  readonly beside?: 'claim' | 'upkeep'
}

/** A compiled question that must find a row when it is asked, else its unit is stale. */
export interface RowAssertion {
  readonly sql: string
  readonly parameters: readonly (string | number)[]
}

/** The statement of a compiled query. Runs nothing: only the ledger writes (db/ledger). */
export function statementOf(query: CompiledQuery, changes?: number): LedgerStatement {
  const { sql, parameters } = query
  return changes === undefined ? { sql, parameters } : { sql, parameters, changes }
}

/** RFC 3339, UTC, ms: how timestamps are stored. Texts of years 0 to 9999 sort as their instants do. */
export function timestamp(at: number): string {
  return new Date(at).toISOString()
}
