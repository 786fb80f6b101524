import type { Kysely } from 'kysely'

/**
 * The places up to which readers of the ledger have taken its rows (docs/exports.md#cursors). The row whose stream is
 * the empty text is of the reader as a whole: its `seq` counts leaves of the archive.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('export_cursors')
    .addColumn('sink', 'text', (column) => column.notNull())
    .addColumn('stream', 'text', (column) => column.notNull())
    .addColumn('seq', 'bigint', (column) => column.notNull())
    .addColumn('at', 'text', (column) => column.notNull())
    .addColumn('failed_at', 'text')
    .addColumn('error', 'text')
    .addPrimaryKeyConstraint('export_cursors_key', ['sink', 'stream'])
    .execute()
}
