import { type CreateTableBuilder, type Kysely, sql } from 'kysely'

/**
 * Sums the costs of calls by the day and who and what they were for (docs/ledger.md#spends): of the rows up to
 * the place in `row_counts_place`. Calls from before have no cost in their rows, and are in no sum.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  const keys = ['day', 'principal', 'provider', 'model', 'tool'] as const
  const sums = [
    ...['calls', 'input_tokens', 'output_tokens', 'cache_read_tokens', 'cache_write_tokens'],
    ...['microusd', 'estimated_calls', 'estimated_microusd', 'unpriced_calls'],
  ]
  let table: CreateTableBuilder<string, string> = db.schema.createTable('spend_counts')
  // The empty text: none. A key may not be null.
  for (const key of keys) table = table.addColumn(key, 'text', (column) => column.notNull())
  for (const sum of sums) table = table.addColumn(sum, 'bigint', (column) => column.notNull())
  await table.addPrimaryKeyConstraint('spend_counts_pk', [...keys]).execute()
  await db.schema
    .createIndex('spend_counts_principal')
    .on('spend_counts')
    .columns(['principal', 'day'])
    .execute()
  // Pages ask for these each time, and there are few or none.
  await sql`create index spend_counts_unpriced on spend_counts (day) where unpriced_calls > 0`.execute(db)
}
