import type { Kysely } from 'kysely'

const PRINCIPALS = [
  'internal_agents',
  'local_user_principals',
  'local_workload_principals',
  'local_operator_principals',
]

/** Labels of principals, named sets of capabilities, and which of those a principal was given last. */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const table of PRINCIPALS) {
    await db.schema
      .alterTable(table)
      .addColumn('labels', 'text', (column) => column.notNull().defaultTo('{}'))
      .execute()
    await db.schema.alterTable(table).addColumn('capability_set', 'text').execute()
  }
  await db.schema
    .createTable('capability_sets')
    .addColumn('name', 'text', (column) => column.primaryKey())
    .addColumn('capabilities', 'text', (column) => column.notNull())
    .addColumn('revision', 'integer', (column) => column.notNull().defaultTo(1))
    .addColumn('created_at', 'text', (column) => column.notNull())
    .addColumn('updated_at', 'text', (column) => column.notNull())
    // Names in the ledger.
    .addColumn('created_by', 'text')
    .addColumn('changed_by', 'text')
    .execute()
}
