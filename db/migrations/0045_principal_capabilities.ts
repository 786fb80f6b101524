import type { Kysely } from 'kysely'

/**
 * Users and workloads get a capability set (spec §2.1). The default fills the rows that exist: they may do
 * nothing.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const table of ['local_user_principals', 'local_workload_principals']) {
    await db.schema
      .alterTable(table)
      .addColumn('capabilities', 'text', (column) => column.notNull().defaultTo('[]'))
      .execute()
  }
}
