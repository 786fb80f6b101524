import type { Kysely } from 'kysely'

/** The stops that have not ended (docs/stops.md). They share the number of `limit_set`, which decisions assert. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('stops')
    .addColumn('stop_id', 'text', (column) => column.primaryKey().notNull())
    // JSON: what it is for.
    .addColumn('scope', 'text', (column) => column.notNull())
    .addColumn('reason', 'text', (column) => column.notNull())
    .addColumn('begun_at', 'text', (column) => column.notNull())
    .addColumn('begun_by', 'text', (column) => column.notNull())
    .addColumn('until', 'text')
    .execute()
}
