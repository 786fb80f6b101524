import type { Kysely } from 'kysely'
import type { RowCounts } from '../../ledger/counts/row-counts.ts'
import { countedPlace, keepCounts, lastPlace, OF_ONE_STREAM } from '../../ledger/counts/store.ts'
import type { LedgerReader } from '../../ledger/read/reader.ts'
import type { Schema } from '../../schema.ts'

/** What takes long is counted where the ledger is read: on a thread of its own. */
export const rowCounts = (db: Kysely<Schema>, reader: LedgerReader): RowCounts => ({
  counted: () => countedPlace(db),
  portion: (after, most) => reader.portion(after, most),
  keep: (from, portion) => keepCounts(db, OF_ONE_STREAM, from, portion),
  within: (window, signal) => reader.counts(window, signal),
  last: () => lastPlace(db, OF_ONE_STREAM),
})
