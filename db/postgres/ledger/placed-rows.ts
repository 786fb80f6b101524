import { setImmediate as nextTurn } from 'node:timers/promises'
import { type Kysely, sql } from 'kysely'
import { LeafRow, PAGE_WIDTH } from '../../ledger/canonical/leaf-row.ts'
import { ROWS_PER_READ } from '../../ledger/read/find.ts'
import type { ReadLedgerPages } from '../../ledger/read/read.ts'
import type { StoredRow } from '../../ledger/record/leaf.ts'
import { SHOWN_COLUMNS } from '../../ledger/record/leaf.ts'
import { MAX_SEALED_LINES, readPages, sealedLineReader } from '../../ledger/verify/threads.ts'
import type { DamagedRow } from '../../ledger/verify/verify.ts'
import type { DatabaseSchema } from '../../schema.ts'
import { LEAF_OF_COLUMNS } from './columns.ts'

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

interface AgreeingPage {
  /** Leaves with their digests; an empty line of a row that has another form. */
  readonly lines: string
  readonly count: number
  /** The place of the last. */
  readonly place: number
}

/**
 * The same for a schema of this version: there the view makes the leaf of the columns, and nobody need compare
 * them. Threads read them; a page with any other row is read again as its columns say.
 */
export const agreeingPages: ReadLedgerPages = async function* (db, signal, from) {
  const { heads, last } = await ledgerExtentOf(db)
  const seen = new Map<string, number>()
  const asked: (AgreeingPage & { readonly after: number | undefined })[] = []
  async function* blocks(): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    let coming = linesBehind(db, from, last)
    for (let after = from; ; ) {
      const page = await coming
      if (page.count === 0) return
      asked.push({ ...page, after })
      const isLast = page.count < MAX_SEALED_LINES
      // The server makes the next while these are read and judged.
      if (!isLast) coming = linesBehind(db, page.place, last)
      // Nobody may ask for it.
      coming.catch(() => {})
      yield new Uint8Array(Buffer.from(page.lines))
      signal.throwIfAborted()
      if (isLast) return
      after = page.place
    }
  }
  for await (const page of readPages(sealedLineReader, blocks(), ({ buffer }) => [buffer])) {
    const { after, count = 0, place = 0 } = asked.shift() ?? {}
    const read = page ? [...LeafRow.ofPage(page)].filter((line) => line instanceof LeafRow) : []
    const isWhole = read.length === count && page?.places.length === count * PAGE_WIDTH
    const found: readonly StoredRow[] = isWhole ? read : await pageBehind(db, after, place, count)
    const rows = found.filter(({ stream, seq }) => seq <= (heads.get(stream) ?? 0))
    for (const { stream, seq } of rows) seen.set(stream, seq)
    yield rows
  }
  yield missingRows(heads, seen, from === undefined)
}

async function linesBehind(
  db: Kysely<DatabaseSchema>,
  after: number | undefined,
  last: number,
): Promise<AgreeingPage> {
  const behind = after === undefined ? sql`true` : sql`place > ${after}`
  const sealed = sql.raw(`coalesce('"' || encode(row_sha256, 'hex') || '"' || ${LEAF_OF_COLUMNS}, '')`)
  const { rows } = await sql<AgreeingPage>`
    select coalesce(string_agg(line, chr(10) order by place), '') as lines, count(*) as count,
      coalesce(max(place), 0) as place
    from (
      select place, case when leaf is null and num_nonnulls(prev_hash, row_hash) = 0 then ${sealed} else '' end as line
      from audit_rows where ${behind} and place <= ${last} order by place limit ${sql.lit(MAX_SEALED_LINES)}
    ) as page`.execute(db)
  return rows[0] ?? { lines: '', count: 0, place: 0 }
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
  most = ROWS_PER_READ,
): Promise<readonly PostgresPlacedRow[]> {
  // The first page from the very beginning, wherever a row was put.
  const behind = after === undefined ? sql`true` : sql`place > ${after}`
  const columns = sql.join([...SHOWN_COLUMNS, 'leaf', 'place'].map((name) => sql.ref(name)))
  const { rows } = await sql<PostgresPlacedRow>`
    select ${columns} from audit_log where ${behind} and place <= ${last} order by place limit ${sql.lit(most)}`.execute(
    db,
  )
  return rows
}
