import type { Kysely } from 'kysely'

/**
 * Adds the rehearsal of a change that waits for a second operator (docs/operators.md#two-people): null if
 * there is none.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema.alterTable('proposals').addColumn('rehearsal_id', 'text').execute()
}
