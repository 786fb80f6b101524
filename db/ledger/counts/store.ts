import { type Kysely, sql } from 'kysely'
import type { DatabaseSchema } from '../../schema.ts'
import { type LedgerStatement, statementOf } from '../../support/statement.ts'
import type { CountingDialect } from './dialect.ts'
import {
  type CountedWindow,
  DAY_LEVEL,
  MINUTE_LEVEL,
  type MinuteCounts,
  rollUpCounts,
  type SpanCount,
  type WindowCounts,
} from './row-counts.ts'
import { keepSpends, spendsOfRows } from './spend-store.ts'

type RowCountsDatabase = Kysely<DatabaseSchema>

/** The most uncounted rows that one question counts. It leaves more out, and says so. */
const MAX_ROWS_PER_COUNT = 8_192

export async function countedPlace(db: RowCountsDatabase): Promise<number> {
  const { place } = await db.selectFrom('row_counts_place').select('place').executeTakeFirstOrThrow()
  return place
}

export async function lastPlace(db: RowCountsDatabase, { place }: CountingDialect): Promise<number> {
  const { rows } = await sql<{ last: number | null }>`
    select max(${sql.ref(place)}) as last from audit_rows`.execute(db)
  return rows[0]?.last ?? 0
}

interface CountRange {
  readonly after: number
  readonly until: number
  readonly most: number
}

export async function countPortion(
  db: RowCountsDatabase,
  dialect: CountingDialect,
  { after, until, most }: CountRange,
): Promise<MinuteCounts> {
  const column = sql.ref(dialect.place)
  const { rows } = await sql<SpanCount & { readonly last: number }>`
    select substr(recorded_at, 1, ${sql.lit(MINUTE_LEVEL)}) as span, action, status, count(*) as rows, max(place) as last
    from (select recorded_at, action, status, ${column} as place from audit_rows
      where ${column} > ${after} and ${column} <= ${until} order by ${column} limit ${most}) as portion
    group by 1, 2, 3`.execute(db)
  const counts = rows.map(({ span, action, status, rows: count }) => ({ span, action, status, rows: count }))
  const last = Math.max(after, ...rows.map((row) => row.last))
  const spends = last > after ? await spendsOfRows(db, dialect, { after, until: last }) : []
  return { counts, spends, place: last }
}

export function keepCounts(
  db: RowCountsDatabase,
  { members }: CountingDialect,
  from: number,
  { counts, spends, place }: MinuteCounts,
): readonly LedgerStatement[] {
  const move = db.updateTable('row_counts_place').set({ place }).where('id', '=', 1).where('place', '=', from)
  const add = sql`
    insert into row_counts (level, span, action, status, row_count)
    select cast(value ->> 0 as integer), value ->> 1, value ->> 2, value ->> 3, cast(value ->> 4 as bigint)
    from ${members(JSON.stringify(rollUpCounts(counts)))} where true
    on conflict (level, span, action, status) do update set row_count = row_counts.row_count + excluded.row_count`
  const upkeep = { beside: 'upkeep' } as const
  return [
    { ...statementOf(move.compile(), 1), ...upkeep },
    { ...statementOf(add.compile(db)), ...upkeep },
    ...(spends.length === 0 ? [] : [keepSpends(db, members, spends)]),
  ]
}

const SPANS_AT_ONCE = 1_024

/** The deletion of some of the counts of spans before an instant, but for those of days; null if none is left. */
export async function removeCounts(
  db: RowCountsDatabase,
  before: string,
): Promise<readonly LedgerStatement[] | null> {
  const { rows } = await sql<{ level: number; last: string }>`
    select level, max(span) as last from (
      select level, span from row_counts
      where level > ${sql.lit(DAY_LEVEL)} and span < substr(cast(${before} as text), 1, level)
      order by level, span limit ${SPANS_AT_ONCE}) as portion
    group by level order by level limit 1`.execute(db)
  const [old] = rows
  if (!old) return null
  const gone = db.deleteFrom('row_counts').where('level', '=', old.level).where('span', '<=', old.last)
  return [{ ...statementOf(gone.compile()), beside: 'upkeep' }]
}

/** Counts a window in one statement, so at one instant: no row is counted twice while the place moves on. */
export async function countWithin(
  db: RowCountsDatabase,
  { place }: CountingDialect,
  { level, since, until }: CountedWindow,
): Promise<WindowCounts> {
  const [column, counted] = [sql.ref(place), sql`(select place from row_counts_place)`]
  // The time is written so that no engine enters the index of times, in which the part after the place has no
  // bound.
  const { rows } = await sql<SpanCount>`
    select span, action, status, row_count as rows from row_counts
    where level = ${sql.lit(level)} and span >= ${since} and span < ${until}
    union all
    select substr(recorded_at, 1, ${sql.lit(level)}), action, status, count(*) from audit_rows
    where ${column} > ${counted} and ${column} <= ${counted} + ${sql.lit(MAX_ROWS_PER_COUNT)}
      and recorded_at || '' >= ${since} and recorded_at || '' < ${until}
    group by 1, 2, 3
    union all
    select '', '', '', (select coalesce(max(${column}), 0) from audit_rows) - ${counted}`.execute(db)
  const behind = rows.find(({ span }) => span === '')?.rows ?? 0
  return {
    counts: rows.filter(({ span }) => span !== ''),
    uncounted: Math.max(0, behind - MAX_ROWS_PER_COUNT),
  }
}
