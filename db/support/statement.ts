import type { CompiledQuery } from 'kysely'

/** One write, compiled. `changes`: how many rows it must change, else the whole unit is rolled back. */
export interface LedgerStatement {
  readonly sql: string
  readonly parameters: readonly unknown[]
  readonly changes?: number
  /**
   * What it is where it changes nobody's authority: decisions may be made beside it. Of a `claim` (db/single-uses.ts)
   * the parameters are a digest and an instant, and an engine may make many at once.
   */
  readonly beside?: 'claim' | 'upkeep'
}

/** A question, compiled, that must find a row where it is asked, else the unit that asks it is stale. */
export interface RowAssertion {
  readonly sql: string
  readonly parameters: readonly (string | number)[]
}

/** The statement of a compiled query. Runs nothing: only the ledger writes (db/ledger). */
export function statementOf(query: CompiledQuery, changes?: number): LedgerStatement {
  const { sql, parameters } = query
  return changes === undefined ? { sql, parameters } : { sql, parameters, changes }
}

/**
 * RFC 3339, UTC, ms: how every timestamp is stored. Texts of this form sort as their instants do (years 0 to
 * 9999).
 */
export function timestamp(at: number): string {
  return new Date(at).toISOString()
}
