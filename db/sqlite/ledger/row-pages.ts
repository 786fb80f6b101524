import { isUtf8 } from 'node:buffer'
import SQLite from 'better-sqlite3'
import { LeafRow, PAGE_WIDTH, readLeaves } from '../../ledger/canonical/leaf-row.ts'
import { MAIN_STREAM, type StoredRow } from '../../ledger/record/leaf.ts'
import { MAX_SEALED_LINES, type PageReader, readPages, serveAs } from '../../ledger/verify/threads.ts'
import { LEAF_OF_ROW } from './form/columns.ts'
import { AUDIT_LOG_COLUMNS, openReadOnly, ROWS_PER_PAGE } from './rows.ts'

interface SeqRange {
  readonly after: number
  readonly until: number
}

/**
 * Reads the leaves of rows with their digests, as lines: most of a row's time was the making of its columns. Of a
 * row of another form the line is empty; each row is one line at least, so that as many lines as rows are one each.
 */
function rangeReader(db: SQLite.Database): (range: SeqRange) => ReturnType<typeof readLeaves> {
  const sealed = `iif(leaf = '' and typeof(row_hash) = 'text', '"' || row_hash || '"' || ${LEAF_OF_ROW}, '')`
  const lines = db.prepare<[number, number], { lines: Buffer | null; count: number }>(
    `select cast(group_concat(line, x'0a') as blob) as lines, count(*) as count from (
        select coalesce(${sealed}, '') as line from audit_rows where seq > ? and seq <= ? order by seq)`,
  )
  return ({ after, until }) => {
    const { lines: found, count } = lines.get(after, until) ?? { lines: null, count: 0 }
    if (!found || count !== until - after) throw new Error('there are fewer rows')
    return readLeaves(found, true, { most: count + 1 })
  }
}

const ROLE = 'rows of SQLite'
serveAs(ROLE, (file: string) => rangeReader(openReadOnly(file)))

/**
 * Reads the rows that there are now behind a place, in threads. Returns the place that it came to, or `from`: what
 * is left cannot be read so. For a schema of this version: there the view makes the leaf of the columns.
 */
export async function* rowPages(
  db: SQLite.Database,
  from: number | null,
  until: number,
): AsyncGenerator<readonly StoredRow[], number | null> {
  const first = db.prepare<[], number | null>('select min(seq) from audit_rows').pluck()
  // A row before the first is found by reading from the very beginning.
  if (from === null && readable(() => first.get()) !== 1) return from
  const inOtherForm = leafPages(db)
  const reader: PageReader<string, SeqRange> = {
    module: import.meta.url,
    role: ROLE,
    read: rangeReader(db),
    data: db.name,
  }
  let last = from ?? 0
  for await (const page of readPages(reader, rangesOf(last, until))) {
    const count = Math.min(MAX_SEALED_LINES, until - last)
    const read = page ? [...LeafRow.ofPage(page)].filter((line) => line instanceof LeafRow) : []
    const isWhole = read.length === count && page?.places.length === count * PAGE_WIDTH
    const rows = isWhole ? read : readable(() => inOtherForm(last, count).rows)
    if (rows?.length !== count || rows.at(-1)?.seq !== last + count) return last
    last += count
    yield rows
  }
  return last
}

/** Reads; undefined if the file cannot be read there, which is named by who reads row by row. */
function readable<Value>(read: () => Value): Value | undefined {
  try {
    return read()
  } catch (error) {
    if (error instanceof SQLite.SqliteError) return undefined
    throw error
  }
}

/** The number of the newest row, as far as it can be read; else 0. */
export const newestSeq = (db: SQLite.Database): number =>
  readable(() => db.prepare<[], number | null>('select max(seq) from audit_rows').pluck().get()) ?? 0

function* rangesOf(from: number, until: number): Generator<SeqRange> {
  for (let after = from; after < until; after += MAX_SEALED_LINES)
    yield { after, until: Math.min(after + MAX_SEALED_LINES, until) }
}

interface RowWithLeafBytes extends Omit<StoredRow, 'leaf'> {
  /** Null if the leaf is no text. */
  readonly leaf: Buffer | null
}

const BESIDE = `'${MAIN_STREAM}' as stream, seq, recorded_at, request_id, principal_id, action, status, row_hash`

/**
 * Reads only the leaves and the columns beside them, several times faster. For a schema of this version: there
 * the view makes every other column of the leaf, or the leaf of them. Another kind of row is read through the view.
 */
function leafPages(db: SQLite.Database) {
  const select = `select ${BESIDE}, iif(typeof(leaf) = 'text', cast(${LEAF_OF_ROW} as blob), null) as leaf from audit_rows`
  const first = db.prepare<[number], RowWithLeafBytes>(`${select} order by seq limit ?`)
  const next = db.prepare<[number, number], RowWithLeafBytes>(`${select} where seq > ? order by seq limit ?`)
  const whole = db.prepare<[number], StoredRow>(`select ${AUDIT_LOG_COLUMNS} from audit_log where seq = ?`)
  return (after: number | null, most: number) => {
    // The first page from the very beginning, wherever a row was put.
    const page = after === null ? first.all(most) : next.all(after, most)
    const rows = page.flatMap((beside) => {
      const row = readLeaf(beside) ?? whole.get(beside.seq)
      return row ? [row] : []
    })
    return { rows, last: page.at(-1)?.seq ?? after, isLast: page.length < most }
  }
}

/** Reads them row by row. Returns the last place. */
export function* leafRowsAfter(
  db: SQLite.Database,
  after: number | null,
): Generator<StoredRow, number | null> {
  const read = leafPages(db)
  for (let from = after; ; ) {
    const { rows, last, isLast } = read(from, ROWS_PER_PAGE)
    yield* rows
    if (isLast) return last
    from = last
  }
}

const readLeaf = (beside: RowWithLeafBytes): LeafRow | null =>
  beside.leaf !== null && isUtf8(beside.leaf) ? LeafRow.ofLeaf(beside.leaf, beside) : null
