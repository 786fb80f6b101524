import type { CreateTableBuilder, Kysely } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await principals(db, 'internal_agents', 'agent_id')
    .addColumn('capabilities', 'text', (column) => column.notNull().defaultTo('[]'))
    .execute()
  await principals(db, 'local_user_principals', 'principal_id').execute()
  await principals(db, 'local_workload_principals', 'principal_id').execute()
  await newestFirst(db, 'internal_agents', 'agent_id')
  await newestFirst(db, 'local_user_principals', 'principal_id')
  await newestFirst(db, 'local_workload_principals', 'principal_id')
}

function principals(db: Kysely<unknown>, table: string, id: string): CreateTableBuilder<string, string> {
  return db.schema
    .createTable(table)
    .addColumn(id, 'text', (column) => column.primaryKey().notNull())
    .addColumn('name', 'text', (column) => column.notNull().unique())
    .addColumn('display_name', 'text')
    .addColumn('is_active', 'integer', (column) => column.notNull().defaultTo(1))
    .addColumn('enrollment_method', 'text', (column) => column.notNull())
    .addColumn('spiffe_id', 'text')
    .addColumn('dpop_jkt', 'text')
    .addColumn('federated', 'integer', (column) => column.notNull().defaultTo(0))
    .addColumn('federation_revision', 'integer', (column) => column.notNull().defaultTo(1))
    .addColumn('last_pushed_revision', 'integer', (column) => column.notNull().defaultTo(0))
    .addColumn('revision', 'integer', (column) => column.notNull().defaultTo(1))
    .addColumn('created_at', 'text', (column) => column.notNull())
    .addColumn('updated_at', 'text', (column) => column.notNull())
    .addColumn('last_seen_at', 'text')
}

function newestFirst(db: Kysely<unknown>, table: string, id: string): Promise<void> {
  return db.schema.createIndex(`${table}_newest`).on(table).columns(['created_at', id]).execute()
}
