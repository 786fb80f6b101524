import { type Kysely, type RawBuilder, sql } from 'kysely'
import type { Schema } from '../../schema.ts'
import { type Statement, statementOf } from '../../support/statement.ts'
import { type Counted, inLevels, MINUTE } from './counted.ts'
import type { CountedWindow, Portion, WindowCounts } from './row-counts.ts'

type Db = Kysely<Schema>

/** Where the engines differ. */
export interface CountingDialect {
  /** The column of `audit_rows` that has a row's place. */
  readonly place: 'seq' | 'place'
  /** A table with one column `value`: the members of a JSON array that is a parameter. */
  readonly members: (json: string) => RawBuilder<unknown>
}

/** Of an engine with one stream, whose rows have their places by their seqs. */
export const OF_ONE_STREAM: CountingDialect = {
  place: 'seq',
  members: (json) => sql`json_each(${json})`,
}

/** The rows behind what is kept that one question counts. More: they are left out, and it is said. */
const MOST_AT_ONCE = 8_192

/** The place up to which rows are counted. */
export async function countedPlace(db: Db): Promise<number> {
  const { place } = await db.selectFrom('row_counts_place').select('place').executeTakeFirstOrThrow()
  return place
}

/** The place of the last row of the ledger; 0 where there is none. */
export async function lastPlace(db: Db, { place }: CountingDialect): Promise<number> {
  const { rows } = await sql<{ last: number | null }>`
    select max(${sql.ref(place)}) as last from audit_rows`.execute(db)
  return rows[0]?.last ?? 0
}

/** The rows that are counted: those behind `after`, up to `until`, at most `most`. */
interface Part {
  readonly after: number
  readonly until: number
  readonly most: number
}

/** Counts rows by minutes. */
export async function countPortion(
  db: Db,
  { place }: CountingDialect,
  { after, until, most }: Part,
): Promise<Portion> {
  const column = sql.ref(place)
  const { rows } = await sql<Counted & { readonly last: number }>`
    select substr(recorded_at, 1, ${sql.lit(MINUTE)}) as span, action, status, count(*) as rows, max(place) as last
    from (select recorded_at, action, status, ${column} as place from audit_rows
      where ${column} > ${after} and ${column} <= ${until} order by ${column} limit ${most}) as portion
    group by 1, 2, 3`.execute(db)
  const counts = rows.map(({ span, action, status, rows: count }) => ({ span, action, status, rows: count }))
  return { counts, place: Math.max(after, ...rows.map(({ last }) => last)) }
}

/** Adds a portion to what is kept up to a place. */
export function keepCounts(
  db: Db,
  { members }: CountingDialect,
  from: number,
  { counts, place }: Portion,
): readonly Statement[] {
  const move = db.updateTable('row_counts_place').set({ place }).where('id', '=', 1).where('place', '=', from)
  const add = sql`
    insert into row_counts (level, span, action, status, row_count)
    select cast(value ->> 0 as integer), value ->> 1, value ->> 2, value ->> 3, cast(value ->> 4 as bigint)
    from ${members(JSON.stringify(inLevels(counts)))} where true
    on conflict (level, span, action, status) do update set row_count = row_counts.row_count + excluded.row_count`
  const upkeep = { beside: 'upkeep' } as const
  return [
    { ...statementOf(move.compile(), 1), ...upkeep },
    { ...statementOf(add.compile(db)), ...upkeep },
  ]
}

/**
 * Counts a window: what is kept, and the rows behind it. In one statement, so of one instant: no row is counted in both
 * while the place moves on.
 */
export async function countWithin(
  db: Db,
  { place }: CountingDialect,
  { level, since, until }: CountedWindow,
): Promise<WindowCounts> {
  const [column, counted] = [sql.ref(place), sql`(select place from row_counts_place)`]
  // The time is written so that no engine enters the index of times, in which the part behind the place has no bound.
  const { rows } = await sql<Counted>`
    select span, action, status, row_count as rows from row_counts
    where level = ${sql.lit(level)} and span >= ${since} and span < ${until}
    union all
    select substr(recorded_at, 1, ${sql.lit(level)}), action, status, count(*) from audit_rows
    where ${column} > ${counted} and ${column} <= ${counted} + ${sql.lit(MOST_AT_ONCE)}
      and recorded_at || '' >= ${since} and recorded_at || '' < ${until}
    group by 1, 2, 3
    union all
    select '', '', '', (select coalesce(max(${column}), 0) from audit_rows) - ${counted}`.execute(db)
  const behind = rows.find(({ span }) => span === '')?.rows ?? 0
  return {
    counts: rows.filter(({ span }) => span !== ''),
    uncounted: Math.max(0, behind - MOST_AT_ONCE),
  }
}
