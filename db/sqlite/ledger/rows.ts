import SQLite from 'better-sqlite3'
import { pseudonymsIn } from '../../ledger/read/names.ts'
import type { ReadableNames, StoredRow } from '../../ledger/record/leaf.ts'
import type { DamagedRow } from '../../ledger/verify/verify.ts'
import { SELECT_ALL_COLUMNS } from './form/columns.ts'

export const AUDIT_LOG_COLUMNS = `stream, seq, recorded_at, request_id, principal_id, principal_type, action, status, tool, model, provider,
  cert_thumbprint, dpop_jkt, detail, config_digest, version, prev_hash, row_hash, leaf`

/** The last rows, oldest first. */
export function lastRows(db: SQLite.Database, limit: number): readonly StoredRow[] {
  return db
    .prepare<[number], StoredRow>(`select ${AUDIT_LOG_COLUMNS} from audit_log order by seq desc limit ?`)
    .all(limit)
    .reverse()
}

/**
 * A database file that is only read, also while the gateway writes it. Throws if it is not one, or has no
 * ledger.
 */
export function openReadOnly(file: string): SQLite.Database {
  const db = new SQLite(file, { readonly: true, fileMustExist: true })
  try {
    // The schema is data too, and the ledger is read through a view of it.
    db.pragma('trusted_schema = OFF')
    db.prepare('select 1 from audit_log limit 1')
    if (!isTable(db, 'audit_rows') && !isTable(db, 'audit_log'))
      throw new Error('the rows of its ledger are in no table')
    return db
  } catch (error) {
    db.close()
    throw error
  }
}

/**
 * Every row in the order in which it was written, as of now. A page that cannot be read ends the rows with a
 * {@link DamagedRow}. Reads the table itself, not an index over it: an index can be made to leave rows out.
 */
export function* storedRows(db: SQLite.Database): Generator<StoredRow | DamagedRow> {
  const { from, place } = formOf(db)
  try {
    yield* db.prepare<[], StoredRow>(`select ${AUDIT_LOG_COLUMNS} from ${from} order by ${place}`).iterate()
  } catch (error) {
    if (!(error instanceof SQLite.SqliteError)) throw error
    yield { damaged: `cannot be read: ${error.message}` }
  }
}

/**
 * Returns the table to read, and the column of a row's place in it. Up to migration 0051 `audit_log` is a
 * table with an index for its key; since then a view, and `seq` is the place
 * (db/sqlite/ledger/form/table.ts). Does NOT read the view itself: another one in its place may say anything,
 * or have no end.
 */
const formOf = (db: SQLite.Database): { readonly from: string; readonly place: string } =>
  isTable(db, 'audit_log') && !isTable(db, 'audit_rows')
    ? { from: 'audit_log not indexed', place: 'rowid' }
    : { from: `(${SELECT_ALL_COLUMNS})`, place: 'seq' }

const isTable = (db: SQLite.Database, name: string): boolean =>
  db.prepare("select 1 from sqlite_schema where name = ? and type = 'table'").get(name) !== undefined

/** Rows that are read at once. */
export const ROWS_PER_PAGE = 256

/**
 * Every row as {@link storedRows} reads them, page by page, each a short read of its own: a read that lasted
 * for minutes would keep the write-ahead log from being moved into the database. Rows written meanwhile are
 * read in one transaction, in which `atEnd` is called after the last row. `behind`: what reads them.
 */
export function* liveRows(
  db: SQLite.Database,
  atEnd: () => void,
  behind: typeof rowsAfter = rowsAfter,
): Generator<StoredRow | DamagedRow> {
  try {
    const last = yield* behind(db, null)
    db.exec('begin')
    yield* behind(db, last)
    atEnd()
  } catch (error) {
    if (!(error instanceof SQLite.SqliteError)) throw error
    yield { damaged: `cannot be read: ${error.message}` }
  } finally {
    if (db.inTransaction) db.exec('rollback')
  }
}

interface SqlitePlacedRow extends StoredRow {
  readonly place: number
}

/**
 * Reads the rows after a place, page by page, up to a page that is not full; returns the place of the last.
 * Null: from the first row on. Throws if a page cannot be read.
 */
export function* rowsAfter(db: SQLite.Database, after: number | null): Generator<StoredRow, number | null> {
  const { from, place } = formOf(db)
  const select = `select ${place} as place, ${AUDIT_LOG_COLUMNS} from ${from}`
  const first = db.prepare<[], SqlitePlacedRow>(`${select} order by ${place} limit ${ROWS_PER_PAGE}`)
  const next = db.prepare<[number], SqlitePlacedRow>(
    `${select} where ${place} > ? order by ${place} limit ${ROWS_PER_PAGE}`,
  )
  let last = after
  for (;;) {
    // The first page from the very beginning, wherever a row was put.
    const page = last === null ? first.all() : next.all(last)
    for (const { place: at, ...row } of page) {
      last = at
      yield row
    }
    if (page.length < ROWS_PER_PAGE) return last
  }
}

/**
 * Makes the function that finds the readable ids of the users that a row knows by their pseudonyms, as long
 * as they exist; in a database of an earlier version there are none.
 */
export function userNames(db: SQLite.Database): (row: StoredRow) => ReadableNames {
  const table = db.prepare(`select 1 from sqlite_schema where name = 'subject_keys'`).get()
  if (table === undefined) return () => ({})
  const find = db
    .prepare<[string], string>('select principal_id from subject_keys where principal_ref = ?')
    .pluck()
  const nameOf = (pseudonym: string | undefined): string | undefined =>
    pseudonym === undefined ? undefined : find.get(pseudonym)
  return (row) => {
    const { principal_name: principal, subject_name: subject } = pseudonymsIn(row)
    return { principal_name: nameOf(principal), subject_name: nameOf(subject) }
  }
}
