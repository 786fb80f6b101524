import type { Kysely } from 'kysely'

const TABLES = ['internal_agents', 'local_user_principals', 'local_workload_principals']

/**
 * Numbers the states of a principal's authority: capabilities, activity, certificate, proof key. A principal
 * that is there already begins with 1, as a new one does.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const table of TABLES) {
    await db.schema
      .alterTable(table)
      .addColumn('authority_revision', 'integer', (column) => column.notNull().defaultTo(1))
      .execute()
  }
}
