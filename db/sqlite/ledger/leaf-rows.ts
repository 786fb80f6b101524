import { isUtf8 } from 'node:buffer'
import type SQLite from 'better-sqlite3'
import { LeafRow } from '../../ledger/canonical/leaf-row.ts'
import { MAIN_STREAM, type StoredRow } from '../../ledger/record/leaf.ts'
import { AUDIT_LOG_COLUMNS, ROWS_PER_PAGE } from './rows.ts'

interface RowWithLeafBytes extends Omit<StoredRow, 'leaf'> {
  /** Its bytes, null of what is no text. */
  readonly leaf: Buffer | null
}

const BESIDE = `'${MAIN_STREAM}' as stream, seq, recorded_at, request_id, principal_id, action, status, row_hash`

/**
 * Reads rows as `rowsAfter` does, several times faster: the leaf and what is stored beside it alone. For a database
 * whose schema is that of this version: there the view makes every other column of the leaf. A row of another kind is
 * read through the view.
 */
export function* leafRowsAfter(
  db: SQLite.Database,
  after: number | null,
): Generator<StoredRow, number | null> {
  const select = `select ${BESIDE}, iif(typeof(leaf) = 'text', cast(leaf as blob), null) as leaf from audit_rows`
  const first = db.prepare<[], RowWithLeafBytes>(`${select} order by seq limit ${ROWS_PER_PAGE}`)
  const next = db.prepare<[number], RowWithLeafBytes>(
    `${select} where seq > ? order by seq limit ${ROWS_PER_PAGE}`,
  )
  const whole = db.prepare<[number], StoredRow>(`select ${AUDIT_LOG_COLUMNS} from audit_log where seq = ?`)
  let last = after
  for (;;) {
    // The first page from the very beginning, wherever somebody has put a row.
    const page = last === null ? first.all() : next.all(last)
    for (const beside of page) {
      last = beside.seq
      const row = readLeaf(beside) ?? whole.get(last)
      if (row) yield row
    }
    if (page.length < ROWS_PER_PAGE) return last
  }
}

const readLeaf = (beside: RowWithLeafBytes): LeafRow | null =>
  beside.leaf !== null && isUtf8(beside.leaf) ? LeafRow.ofLeaf(beside.leaf, beside) : null
