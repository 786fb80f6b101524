import type { Kysely } from 'kysely'
import { SHOWN } from '../../audit/find.ts'
import { MAIN_STREAM } from '../../audit/leaf.ts'
import type { LedgerReader } from '../../audit/reader.ts'
import { HASH_BYTES } from '../../audit/tree/hashes.ts'
import { MOST_OF_REQUEST, type TreeRows } from '../../audit/tree/rows.ts'
import type { Schema } from '../../schema.ts'

/** There is one stream: the place of a row is its seq, and there are no gaps. */
export const treeRows = (db: Kysely<Schema>, reader: LedgerReader): TreeRows => ({
  hashes: async (after, most) => {
    const hashes = await reader.leafHashes(after, most)
    return { hashes, place: after + hashes.length / HASH_BYTES }
  },
  ofRequest: async (requestId) => {
    const rows = await db
      .selectFrom('audit_log')
      .select(['seq', 'principal_id', 'leaf'])
      .where('request_id', '=', requestId)
      .orderBy('seq')
      .limit(MOST_OF_REQUEST)
      .execute()
    return rows.map((row) => ({ ...row, place: row.seq, stream: MAIN_STREAM }))
  },
  between: async (after, before) => {
    const last = await db
      .selectFrom('audit_log')
      .select('seq')
      .orderBy('seq', 'desc')
      .limit(1)
      .executeTakeFirst()
    return Math.max(Math.min(before, (last?.seq ?? 0) + 1) - after - 1, 0)
  },
  leaves: async (after, skip, most) => {
    const rows = await db
      .selectFrom('audit_log')
      .select('leaf')
      .where('seq', '>', after + skip)
      .orderBy('seq')
      .limit(most)
      .execute()
    return rows.map(({ leaf }) => leaf)
  },
  stored: async (after, most) => {
    const rows = await db
      .selectFrom('audit_log')
      .select([...SHOWN, 'leaf'])
      .where('seq', '>', after)
      .orderBy('seq')
      .limit(most)
      .execute()
    return rows.map((row) => ({ ...row, place: row.seq }))
  },
  firstSince: async (instant) => {
    const { place } = await db
      .selectFrom('audit_log')
      .select(({ fn }) => fn.min<number | null>('seq').as('place'))
      .where('recorded_at', '>=', instant)
      .executeTakeFirstOrThrow()
    return place
  },
})
