import { type Kysely, sql } from 'kysely'

/**
 * Counts the ledger's rows of each action and status, by spans of time (docs/ledger.md#counts): in the order
 * of their places, up to the place in `row_counts_place`. The task that counts new rows also counts those
 * that are there already.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('row_counts')
    // The characters of an instant that make the span: 10 of a day, 13 of an hour, 15 of ten minutes, 16 of a
    // minute.
    .addColumn('level', 'integer', (column) => column.notNull())
    .addColumn('span', 'text', (column) => column.notNull())
    .addColumn('action', 'text', (column) => column.notNull())
    .addColumn('status', 'text', (column) => column.notNull())
    .addColumn('row_count', 'bigint', (column) => column.notNull())
    .addPrimaryKeyConstraint('row_counts_pk', ['level', 'span', 'action', 'status'])
    .execute()
  await db.schema
    .createTable('row_counts_place')
    .addColumn('id', 'integer', (column) => column.primaryKey().notNull())
    .addColumn('place', 'bigint', (column) => column.notNull())
    .execute()
  await sql`insert into row_counts_place (id, place) values (1, 0)`.execute(db)
}
