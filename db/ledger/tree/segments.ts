import { type Insertable, type Kysely, type RawBuilder, type Selectable, sql } from 'kysely'
import type { DatabaseSchema } from '../../schema.ts'
import { type LedgerStatement, statementOf, timestamp } from '../../support/statement.ts'
import { OUTCOME_STATUSES } from '../record/outcomes.ts'
import { TILE_WIDTH } from './tiles.ts'

type SegmentDatabase = Kysely<DatabaseSchema>

interface SegmentedDatabase {
  readonly kysely: SegmentDatabase
  readonly engine: 'sqlite' | 'postgres'
}

export type StoredSegment = Omit<Selectable<DatabaseSchema['audit_segments']>, 'principals' | 'actions'>

/** The leaves that are archived, and the place of the last one: rows up to there may be gone. */
export interface ArchiveBoundary {
  readonly size: number
  readonly place: number
}

export const NOTHING_ARCHIVED: ArchiveBoundary = { size: 0, place: 0 }

/** The segments without what their rows are found by, which is long. */
export const segmentsIn = (db: SegmentDatabase) =>
  db
    .selectFrom('audit_segments')
    .select(['first', 'last', 'last_place', 'sha256', 'state', 'file', 'bytes', 'since', 'until'])
    .select(['stream', 'seq', 'confirmed_at', 'removed_at', 'forgotten_at'])

/** The segments in the order of the tree. */
export const listSegments = (db: SegmentDatabase): Promise<readonly StoredSegment[]> =>
  segmentsIn(db).orderBy('first').execute()

export const newestSegment = (db: SegmentDatabase): Promise<StoredSegment | undefined> =>
  segmentsIn(db).orderBy('first', 'desc').limit(1).executeTakeFirst()

export async function archiveBoundary(db: SegmentDatabase): Promise<ArchiveBoundary> {
  const newest = await newestSegment(db)
  return newest ? { size: newest.last + 1, place: newest.last_place } : NOTHING_ARCHIVED
}

/** The segment that a leaf is in, if its rows are no longer kept, or about to go. */
export const segmentOfLeaf = (db: SegmentDatabase, leaf: number): Promise<StoredSegment | undefined> =>
  segmentsIn(db).where('first', '<=', leaf).where('last', '>=', leaf).executeTakeFirst()

export const segmentOfFile = (db: SegmentDatabase, file: string): Promise<StoredSegment | undefined> =>
  segmentsIn(db).where('file', '=', file).executeTakeFirst()

/** The segments before a leaf, the newest first. */
export const segmentsBefore = (
  db: SegmentDatabase,
  leaf: number,
  most: number,
): Promise<readonly StoredSegment[]> =>
  segmentsIn(db).where('first', '<', leaf).orderBy('first', 'desc').limit(most).execute()

/** Counts the segments, their rows and their bytes. */
export async function countSegments(db: SegmentDatabase) {
  const found = await db
    .selectFrom('audit_segments')
    .select((row) => [
      row.fn.countAll<number>().as('segments'),
      row.fn.sum<number>('bytes').as('bytes'),
      row.fn.max<number | null>(row.ref('last')).as('last'),
      row.fn.min<string | null>(row.ref('since')).as('since'),
    ])
    .executeTakeFirstOrThrow()
  const { segments, bytes, last, since } = found
  const rows = last === null ? 0 : Number(last) + 1
  return { segments: Number(segments), bytes: Number(bytes ?? 0), rows, since }
}

/** Says where rows are that are not here. `why`: the reason why they are not read there. */
export const archivedSentence = (
  { file, first, last, since, until, removed_at: at }: StoredSegment,
  why = '',
): string =>
  `Rows ${first} to ${last} of the log, recorded from ${since} to ${until}, were archived${at === null ? '' : ` on ${at.slice(0, 10)}`}, in ${file}${why === '' ? '. Read them there' : `: ${why}`}.`

const upkeep = { beside: 'upkeep' } as const

export const storeSegment = (
  db: SegmentDatabase,
  segment: Insertable<DatabaseSchema['audit_segments']>,
): LedgerStatement => ({
  ...statementOf(db.insertInto('audit_segments').values(segment).compile(), 1),
  ...upkeep,
})

/** Says once of a segment that a copy elsewhere is confirmed, that its rows are gone, or that its file may go. */
export const markSegment = (
  db: SegmentDatabase,
  { first }: StoredSegment,
  column: 'confirmed_at' | 'removed_at' | 'forgotten_at',
  at: number,
): LedgerStatement => ({
  ...statementOf(
    db
      .updateTable('audit_segments')
      .set({ [column]: timestamp(at) })
      .where('first', '=', first)
      .where(column, 'is', null)
      .compile(),
    1,
  ),
  ...upkeep,
})

const placeOf = ({ engine }: Pick<SegmentedDatabase, 'engine'>) =>
  sql.ref(engine === 'sqlite' ? 'seq' : 'place')

/** The place of the first row after a place, up to another; null if there is none. */
export async function nextPlace(
  database: SegmentedDatabase,
  after: number,
  until: number,
): Promise<number | null> {
  const place = placeOf(database)
  const { rows } = await sql<{ next: number | null }>`
    select min(${place}) as next from audit_rows where ${place} > ${after} and ${place} <= ${until}`.execute(
    database.kysely,
  )
  return rows[0]?.next ?? null
}

/** Counts the rows after a place, up to another. */
export async function countPlaces(
  database: SegmentedDatabase,
  after: number,
  until: number,
): Promise<number> {
  const place = placeOf(database)
  const { rows } = await sql<{ count: number }>`
    select count(*) as count from audit_rows where ${place} > ${after} and ${place} <= ${until}`.execute(
    database.kysely,
  )
  return Number(rows[0]?.count ?? 0)
}

/**
 * Finds the decisions between two places whose outcome is still to come: a call may be open for longer than rows
 * are kept, and whoever ends it needs them.
 */
export async function openPlaces(
  database: SegmentedDatabase,
  from: number,
  until: number,
): Promise<readonly number[]> {
  const place = placeOf(database)
  const { rows } = await sql<{ place: number }>`
    select ${place} as place from audit_rows decision
    where ${place} between ${from} and ${until} and status = 'allowed' and request_id is not null and not exists (
      select 1 from audit_rows outcome where outcome.request_id = decision.request_id
        and outcome.status in (${sql.join([...OUTCOME_STATUSES])}))
    order by 1`.execute(database.kysely)
  return rows.map((row) => row.place)
}

/**
 * Deletes the rows between two places, but for the newest of each stream. On PostgreSQL by a function of the owner
 * (db/postgres/ledger/segments.ts), here and below.
 */
export const removeRows = (
  { engine, kysely }: SegmentedDatabase,
  from: number,
  until: number,
): LedgerStatement =>
  beside(
    engine === 'sqlite'
      ? sql`delete from audit_rows where seq between ${from} and min(${until}, (select max(seq) - 1 from audit_rows))`
      : sql`select audit_rows_remove(${from}, ${until})`,
    kysely,
  )

/** Tiles of leaves, and checkpoints, that are deleted at once: as many bytes as some hundred rows. */
const TILES_AT_ONCE = 16
const CHECKPOINTS_AT_ONCE = 256

/**
 * The deletion of some of what is stored beside the rows below a boundary: tiles of leaves, checkpoints but for the
 * newest of each tree, with what others have said of them, and states. Null: nothing is left. The tiles above tell
 * the hashes of 256 leaves each, which every proof needs.
 */
export async function removeBeside(
  { engine, kysely }: SegmentedDatabase,
  { size }: Pick<ArchiveBoundary, 'size'>,
): Promise<readonly LedgerStatement[] | null> {
  const tile = await kysely
    .selectFrom('audit_tiles')
    .select(['tree', 'n'])
    .where('level', '=', 0)
    .where('n', '<', size / TILE_WIDTH)
    .orderBy('tree')
    .orderBy('n')
    .limit(1)
    .executeTakeFirst()
  if (tile) {
    const until = Math.min(tile.n + TILES_AT_ONCE, size / TILE_WIDTH)
    const gone = sql`delete from audit_tiles where tree = ${tile.tree} and level = 0 and n >= ${tile.n} and n < ${until}`
    return [beside(gone, kysely)]
  }
  const { rows } = await sql<{ tree: number; last: number }>`
    select tree, max(size) as last from (
      select tree, size from audit_checkpoints where size <= ${size}
        and size < (select max(size) from audit_checkpoints newest where newest.tree = audit_checkpoints.tree)
      order by tree, size limit ${CHECKPOINTS_AT_ONCE}) as portion
    group by tree order by tree limit 1`.execute(kysely)
  const [old] = rows
  const states = await kysely
    .selectFrom('audit_states')
    .select('leaf')
    .where('leaf', '<', size)
    .limit(1)
    .execute()
  if (!old && states.length > 0) return [beside(sql`delete from audit_states where leaf < ${size}`, kysely)]
  if (!old) return null
  const deletions =
    engine === 'sqlite'
      ? ['audit_cosignatures', 'audit_checkpoints'].map(
          (table) => sql`delete from ${sql.table(table)} where tree = ${old.tree} and size <= ${old.last}`,
        )
      : [sql`select audit_rows_remove_checkpoints(${old.tree}, ${old.last})`]
  return deletions.map((query) => beside(query, kysely))
}

const beside = (query: RawBuilder<unknown>, db: SegmentDatabase): LedgerStatement => ({
  ...statementOf(query.compile(db)),
  ...upkeep,
})
