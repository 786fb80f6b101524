import type { Database } from '../database.ts'
import { listStops, type StopRecord } from '../stops/store.ts'
import type { RowAssertion } from '../support/statement.ts'
import { DatabaseUnavailable } from '../support/unavailable.ts'
import type { CallLimit } from './limit.ts'
import { listLimits, rulesRevision } from './store.ts'

/** All limits and open stops, as they were at one number of their state. */
export interface CallRules {
  readonly revision: number
  readonly limits: readonly CallLimit[]
  readonly stops: readonly StopRecord[]
}

/**
 * Keeps all limits and open stops until authority changes anywhere. They may be a moment old: a decision asserts their
 * number in its transaction.
 */
export class PresentRules {
  readonly #database: Pick<Database, 'kysely' | 'authority'>
  #kept: { readonly rules: CallRules; readonly count: number } | null = null
  #reading: Promise<CallRules> | null = null

  constructor(database: Pick<Database, 'kysely' | 'authority'>) {
    this.#database = database
  }

  /** Returns them; a promise if they must be read. */
  now(): CallRules | Promise<CallRules> {
    if (this.#kept?.count === this.#database.authority.count) return this.#kept.rules
    this.#reading ??= this.#read().finally(() => {
      this.#reading = null
    })
    return this.#reading
  }

  async #read(): Promise<CallRules> {
    const { count } = this.#database.authority
    try {
      // The number first: of limits that are newer than it the assertion says that they are stale.
      const revision = await rulesRevision(this.#database)
      const known = this.#kept?.rules
      const rules = known?.revision === revision ? known : await this.#readAll(revision)
      this.#kept = { rules, count }
      return rules
    } catch (error) {
      throw new DatabaseUnavailable('the limits and stops cannot be read', { cause: error })
    }
  }

  async #readAll(revision: number): Promise<CallRules> {
    const [limits, stops] = await Promise.all([listLimits(this.#database), listStops(this.#database)])
    return { revision, limits, stops }
  }
}

/** Makes the function that asserts that limits and stops are as they were when they had a number. */
export function rulesUnchanged({ kysely }: Pick<Database, 'kysely'>): (revision: number) => RowAssertion {
  const { sql } = kysely.selectFrom('limit_set').select('id').where('revision', '=', 0).compile()
  return (revision) => ({ sql, parameters: [revision] })
}
