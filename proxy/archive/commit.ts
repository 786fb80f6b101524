import type { Insertable, Kysely } from 'kysely'
import { RARE_ACTION } from '../../db/ledger/read/find.ts'
import { type StoredSegment, storeSegment } from '../../db/ledger/tree/segments.ts'
import type { DatabaseSchema } from '../../db/schema.ts'
import { isObject } from '../../db/support/json.ts'
import { noteEntry } from '../../plugins/audit/entries.ts'
import type { RemovalDependencies } from './remove.ts'

/** A segment whose file is on the disk and verified. */
export type WrittenSegment = Omit<
  Insertable<DatabaseSchema['audit_segments']>,
  'stream' | 'seq' | 'confirmed_at' | 'removed_at' | 'forgotten_at'
>

/** Writes the row `ledger.archived` of the next segment, unless it is there, and then the segment itself. */
export async function commitSegment(
  { database: { kysely }, ledger, clock, configDigest }: Omit<RemovalDependencies, 'goesOn'>,
  segment: WrittenSegment,
): Promise<void> {
  const { first, last, sha256, state, file } = segment
  const detail = { first, last, sha256, state, file }
  const known = await archivedRow(kysely, detail)
  const [made] = known
    ? []
    : await ledger.commit({
        entries: [noteEntry({ action: 'ledger.archived', detail }, clock(), configDigest())],
      })
  const { stream, seq } = known ?? made ?? { stream: '', seq: 0 }
  await ledger.commit({ statements: [storeSegment(kysely, { ...segment, stream, seq })], entries: [] })
}

/** Finds the row of a process that ended before it stored its segment: the newest, if it says all of it. */
export async function archivedRow(
  kysely: Kysely<DatabaseSchema>,
  wanted: Partial<StoredSegment>,
): Promise<Pick<StoredSegment, 'stream' | 'seq' | 'sha256'> | null> {
  const newest = await kysely
    .selectFrom('audit_log')
    .select(['stream', 'seq', 'detail'])
    .where('action', '=', 'ledger.archived')
    .where(RARE_ACTION)
    .orderBy('recorded_at', 'desc')
    .orderBy('seq', 'desc')
    .limit(1)
    .executeTakeFirst()
  const said: unknown = newest && JSON.parse(newest.detail)
  if (!newest || !isObject(said)) return null
  const isIt = Object.entries(wanted).every(([name, value]) => said[name] === value)
  return isIt ? { ...newest, sha256: String(said.sha256) } : null
}
