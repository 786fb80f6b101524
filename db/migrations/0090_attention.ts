import { type Kysely, sql } from 'kysely'

/** Cards of *Attention* that were put off (docs/dashboard.md#attention), and an index of refusals by time. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('attention_deferrals')
    .addColumn('card', 'text', (column) => column.primaryKey())
    .addColumn('title', 'text', (column) => column.notNull())
    .addColumn('until', 'text', (column) => column.notNull())
    .addColumn('reason', 'text', (column) => column.notNull())
    .addColumn('by', 'text', (column) => column.notNull())
    .addColumn('at', 'text', (column) => column.notNull())
    .execute()
  await sql`create index audit_rows_denied on audit_rows (recorded_at) where status = 'denied'`.execute(db)
}
