import type { Kysely } from 'kysely'

/**
 * Stores the results of rehearsals (docs/rehearsal.md): a change may name a recent one. The ledger has their
 * digests; their full text is kept for a while.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('rehearsals')
    .addColumn('rehearsal_id', 'text', (column) => column.primaryKey().notNull())
    .addColumn('created_at', 'text', (column) => column.notNull())
    .addColumn('rehearsed_by', 'text', (column) => column.notNull())
    // JSON: the changes by the ids of today, in one form, so that two that say the same are the same text.
    .addColumn('changes', 'text', (column) => column.notNull())
    .addColumn('etags', 'text', (column) => column.notNull())
    .addColumn('result', 'text', (column) => column.notNull())
    .execute()
  await db.schema.createIndex('rehearsals_created_at').on('rehearsals').column('created_at').execute()
}
