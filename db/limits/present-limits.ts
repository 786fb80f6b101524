import type { Database } from '../database.ts'
import type { RowAssertion } from '../support/statement.ts'
import { DatabaseUnavailable } from '../support/unavailable.ts'
import type { CallLimit } from './limit.ts'
import { limitSetRevision, listLimits } from './store.ts'

/** All limits, as they were at one number of their state. */
export interface LimitSet {
  readonly revision: number
  readonly limits: readonly CallLimit[]
}

/**
 * Keeps all limits until authority changes anywhere. They may be a moment old: a decision asserts their number in its
 * transaction.
 */
export class PresentLimits {
  readonly #database: Pick<Database, 'kysely' | 'authority'>
  #kept: { readonly set: LimitSet; readonly count: number } | null = null
  #reading: Promise<LimitSet> | null = null

  constructor(database: Pick<Database, 'kysely' | 'authority'>) {
    this.#database = database
  }

  /** Returns them; a promise if they must be read. */
  now(): LimitSet | Promise<LimitSet> {
    if (this.#kept?.count === this.#database.authority.count) return this.#kept.set
    this.#reading ??= this.#read().finally(() => {
      this.#reading = null
    })
    return this.#reading
  }

  async #read(): Promise<LimitSet> {
    const { count } = this.#database.authority
    try {
      // The number first: of limits that are newer than it the assertion says that they are stale.
      const revision = await limitSetRevision(this.#database)
      const known = this.#kept?.set
      const set =
        known?.revision === revision ? known : { revision, limits: await listLimits(this.#database) }
      this.#kept = { set, count }
      return set
    } catch (error) {
      throw new DatabaseUnavailable('the limits cannot be read', { cause: error })
    }
  }
}

/** Makes the function that asserts that all limits are as they were when they had a number. */
export function limitsUnchanged({ kysely }: Pick<Database, 'kysely'>): (revision: number) => RowAssertion {
  const { sql } = kysely.selectFrom('limit_set').select('id').where('revision', '=', 0).compile()
  return (revision) => ({ sql, parameters: [revision] })
}
