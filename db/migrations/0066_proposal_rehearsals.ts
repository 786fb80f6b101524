import type { Kysely } from 'kysely'

/** What a change that waits for a second operator would do (docs/operators.md#two-people): null where nobody can say. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema.alterTable('proposals').addColumn('rehearsal_id', 'text').execute()
}
