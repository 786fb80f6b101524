import { setImmediate as nextTurn } from 'node:timers/promises'
import { type Kysely, sql } from 'kysely'
import { ROWS_PER_READ } from '../../ledger/read/find.ts'
import type { ReadLedgerPages } from '../../ledger/read/read.ts'
import type { StoredRow } from '../../ledger/record/leaf.ts'
import { SHOWN_COLUMNS } from '../../ledger/record/leaf.ts'
import type { DamagedRow } from '../../ledger/verify/verify.ts'
import type { DatabaseSchema } from '../../schema.ts'

interface LedgerExtent {
  readonly heads: ReadonlyMap<string, number>
  readonly last: number
}

interface PostgresPlacedRow extends StoredRow {
  readonly place: number
}

/**
 * The rows of all streams by place (docs/ledger.md#places), as of the first page, in short reads. Rows that
 * their places do not lead to are a {@link DamagedRow} at the end. Throws an AbortError when the signal
 * fires.
 */
export const placedPages: ReadLedgerPages = async function* (db, signal, from) {
  const { heads, last } = await ledgerExtentOf(db)
  const seen = new Map<string, number>()
  let page: readonly PostgresPlacedRow[] = []
  do {
    page = await pageBehind(db, page.at(-1)?.place ?? from, last)
    // Two transactions that share the lock take places and are committed in any order. A row not committed at
    // the instant of the ends is left out, with all that follow it in its stream.
    const rows = page.filter(({ stream, seq }) => seq <= (heads.get(stream) ?? 0))
    for (const { stream, seq } of rows) seen.set(stream, seq)
    yield rows
    await nextTurn(undefined, { signal })
  } while (page.length === ROWS_PER_READ)
  yield missingRows(heads, seen, from === undefined)
}

/** `isWhole`: every stream must have been seen. */
function missingRows(
  heads: LedgerExtent['heads'],
  seen: ReadonlyMap<string, number>,
  isWhole: boolean,
): readonly DamagedRow[] {
  return [...heads].flatMap(([stream, head]) => {
    if (!isWhole && !seen.has(stream)) return []
    const seq = (seen.get(stream) ?? 0) + 1
    return seq > head ? [] : [{ stream, seq, damaged: 'is missing in the order of all rows' }]
  })
}

/** Reads both in one statement, so at one instant: the basis of a row in another stream is there too. */
async function ledgerExtentOf(db: Kysely<DatabaseSchema>): Promise<LedgerExtent> {
  const { rows } = await sql<{ stream: string; head: number; last: number }>`
    with recursive streams as (
      (select stream from audit_rows order by stream limit 1)
      union all
      select (select next.stream from audit_rows next where next.stream > streams.stream order by stream limit 1)
      from streams where streams.stream is not null
    )
    select stream, (select max(seq) from audit_rows where audit_rows.stream = streams.stream) as head,
      (select max(place) from audit_rows) as last
    from streams where stream is not null`.execute(db)
  return { heads: new Map(rows.map(({ stream, head }) => [stream, head])), last: rows[0]?.last ?? 0 }
}

async function pageBehind(
  db: Kysely<DatabaseSchema>,
  after: number | undefined,
  last: number,
): Promise<readonly PostgresPlacedRow[]> {
  // The first page from the very beginning, wherever a row was put.
  const behind = after === undefined ? sql`true` : sql`place > ${after}`
  const columns = sql.join([...SHOWN_COLUMNS, 'leaf', 'place'].map((name) => sql.ref(name)))
  const { rows } = await sql<PostgresPlacedRow>`
    select ${columns} from audit_log where ${behind} and place <= ${last} order by place limit ${sql.lit(ROWS_PER_READ)}`.execute(
    db,
  )
  return rows
}
