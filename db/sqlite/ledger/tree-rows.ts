import type { Kysely } from 'kysely'
import { SINGLE_STREAM_DIALECT } from '../../ledger/counts/dialect.ts'
import type { RowCounts } from '../../ledger/counts/row-counts.ts'
import { removeSpends } from '../../ledger/counts/spend-store.ts'
import { countedPlace, countPortion, keepCounts, lastPlace } from '../../ledger/counts/store.ts'
import type { LedgerReader } from '../../ledger/read/reader.ts'
import { MAIN_STREAM, SHOWN_COLUMNS } from '../../ledger/record/leaf.ts'
import { HASH_BYTES, leafHash } from '../../ledger/tree/hashes.ts'
import { MAX_ROWS_PER_REQUEST, type TreeRows } from '../../ledger/tree/rows.ts'
import type { DatabaseSchema } from '../../schema.ts'

/**
 * New rows that are looked at on the calling thread, 4 MiB at most: the reader's thread costs a quarter of a
 * second of CPU to start, and 24 MiB while it is there.
 */
const MAX_ROWS_HERE = 32

/** Counts on the ledger reader's thread whatever takes long. */
export const sqliteRowCounts = (db: Kysely<DatabaseSchema>, reader: LedgerReader): RowCounts => ({
  counted: () => countedPlace(db),
  portion: async (after, most) => {
    const until = await lastPlace(db, SINGLE_STREAM_DIALECT)
    return until - after <= MAX_ROWS_HERE
      ? countPortion(db, SINGLE_STREAM_DIALECT, { after, until, most })
      : reader.portion(after, most)
  },
  keep: (from, portion) => keepCounts(db, SINGLE_STREAM_DIALECT, from, portion),
  within: (window, signal) => reader.counts(window, signal),
  spends: (question, signal) => reader.spends(question, signal),
  removeSpends: (before) => removeSpends(db, before),
  last: () => lastPlace(db, SINGLE_STREAM_DIALECT),
})

/** There is one stream: the place of a row is its seq, and there are no gaps. */
export const sqliteTreeRows = (db: Kysely<DatabaseSchema>, reader: LedgerReader): TreeRows => ({
  hashes: async (after, most) => {
    const few = (await lastSeq(db)) - after <= MAX_ROWS_HERE
    const hashes = few
      ? Buffer.concat((await leavesAfter(db, after, Math.min(most, MAX_ROWS_HERE))).map(leafHash))
      : await reader.leafHashes(after, most)
    return { hashes, place: after + hashes.length / HASH_BYTES }
  },
  ofRequest: async (requestId) => {
    const rows = await db
      .selectFrom('audit_log')
      .select(['seq', 'principal_id', 'leaf'])
      .where('request_id', '=', requestId)
      .orderBy('seq')
      .limit(MAX_ROWS_PER_REQUEST)
      .execute()
    return rows.map((row) => ({ ...row, place: row.seq, stream: MAIN_STREAM }))
  },
  placeOf: async ({ seq }) => (seq <= (await lastSeq(db)) ? seq : null),
  between: async (after, before) => Math.max(Math.min(before, (await lastSeq(db)) + 1) - after - 1, 0),
  leaves: (after, skip, most) => leavesAfter(db, after + skip, most),
  stored: async (after, most) => {
    const rows = await db
      .selectFrom('audit_log')
      .select([...SHOWN_COLUMNS, 'leaf'])
      .where('seq', '>', after)
      .orderBy('seq')
      .limit(most)
      .execute()
    return rows.map((row) => ({ ...row, place: row.seq }))
  },
  firstSince: (instant) => reader.firstSince(instant),
})

async function lastSeq(db: Kysely<DatabaseSchema>): Promise<number> {
  const last = await db
    .selectFrom('audit_log')
    .select('seq')
    .orderBy('seq', 'desc')
    .limit(1)
    .executeTakeFirst()
  return last?.seq ?? 0
}

async function leavesAfter(
  db: Kysely<DatabaseSchema>,
  after: number,
  most: number,
): Promise<readonly string[]> {
  const rows = await db
    .selectFrom('audit_log')
    .select('leaf')
    .where('seq', '>', after)
    .orderBy('seq')
    .limit(most)
    .execute()
  return rows.map(({ leaf }) => leaf)
}
