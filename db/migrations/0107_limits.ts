import { type Kysely, sql } from 'kysely'

/**
 * Limits, the number of their present state, and their meters (docs/limits.md). Only the ledger's writer changes
 * meters, in the transactions of the calls that they count.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('limits')
    .addColumn('limit_id', 'text', (column) => column.primaryKey().notNull())
    .addColumn('name', 'text', (column) => column.notNull().unique())
    // JSON: all that it says but its name.
    .addColumn('terms', 'text', (column) => column.notNull())
    // JSON: another amount, until an instant, with a reason; null: none.
    .addColumn('override', 'text')
    .addColumn('revision', 'integer', (column) => column.notNull().defaultTo(1))
    .addColumn('created_at', 'text', (column) => column.notNull())
    .addColumn('updated_at', 'text', (column) => column.notNull())
    .addColumn('created_by', 'text')
    .addColumn('changed_by', 'text')
    .execute()
  await db.schema.createIndex('limits_newest').on('limits').columns(['created_at', 'limit_id']).execute()
  await db.schema
    .createTable('limit_set')
    .addColumn('id', 'integer', (column) => column.primaryKey().notNull())
    .addColumn('revision', 'integer', (column) => column.notNull())
    .execute()
  await sql`insert into limit_set (id, revision) values (1, 1)`.execute(db)
  await db.schema
    .createTable('limit_meters')
    .addColumn('limit_id', 'text', (column) => column.notNull())
    .addColumn('who', 'text', (column) => column.notNull())
    .addColumn('span', 'text', (column) => column.notNull())
    .addColumn('n', 'bigint', (column) => column.notNull())
    .addColumn('reserved', 'bigint', (column) => column.notNull())
    .addColumn('spent', 'bigint', (column) => column.notNull())
    .addColumn('tat', 'bigint', (column) => column.notNull())
    .addPrimaryKeyConstraint('limit_meters_pk', ['limit_id', 'who', 'span'])
    .execute()
  await db.schema.createIndex('limit_meters_span').on('limit_meters').column('span').execute()
}
