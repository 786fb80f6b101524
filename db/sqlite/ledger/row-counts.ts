import type { Kysely } from 'kysely'
import type { RowCounts } from '../../ledger/counts/row-counts.ts'
import { countedPlace, keepCounts, lastPlace, SINGLE_STREAM_DIALECT } from '../../ledger/counts/store.ts'
import type { LedgerReader } from '../../ledger/read/reader.ts'
import type { DatabaseSchema } from '../../schema.ts'

/** Counts on the ledger reader's thread whatever takes long. */
export const sqliteRowCounts = (db: Kysely<DatabaseSchema>, reader: LedgerReader): RowCounts => ({
  counted: () => countedPlace(db),
  portion: (after, most) => reader.portion(after, most),
  keep: (from, portion) => keepCounts(db, SINGLE_STREAM_DIALECT, from, portion),
  within: (window, signal) => reader.counts(window, signal),
  last: () => lastPlace(db, SINGLE_STREAM_DIALECT),
})
