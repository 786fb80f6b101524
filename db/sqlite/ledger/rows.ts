import SQLite from 'better-sqlite3'
import { pseudonymsIn } from '../../ledger/read/names.ts'
import type { ReadableNames, StoredRow } from '../../ledger/record/leaf.ts'
import type { DamagedRow } from '../../ledger/verify/verify.ts'
import { SELECT_ALL_COLUMNS, SELECT_FROM_LEAVES } from './form/columns.ts'

export const AUDIT_LOG_COLUMNS = `stream, seq, recorded_at, request_id, principal_id, principal_type, action, status, tool, model, provider,
  cert_thumbprint, dpop_jkt, detail, config_digest, version, prev_hash, row_hash, leaf`

export function lastRows(db: SQLite.Database, limit: number): readonly StoredRow[] {
  return db
    .prepare<[number], StoredRow>(`select ${AUDIT_LOG_COLUMNS} from audit_log order by seq desc limit ?`)
    .all(limit)
    .reverse()
}

/** Opens a file to read, also while it is written. Throws if it is no database with a ledger. */
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
 * Every row in the order written, as of now. An unreadable page is a {@link DamagedRow} at the end. Reads the
 * table: an index can leave rows out.
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
 * The table to read, and the column of a row's place: up to 0051 `audit_log` is a table, up to 0097 every row
 * has a leaf. Does NOT read the view: one in its place may say anything, or have no end.
 */
function formOf(db: SQLite.Database): { readonly from: string; readonly place: string } {
  if (isTable(db, 'audit_log') && !isTable(db, 'audit_rows'))
    return { from: 'audit_log not indexed', place: 'rowid' }
  const has = db.prepare("select 1 from pragma_table_info('audit_rows') where name = 'prev_hash'").get()
  return { from: `(${has === undefined ? SELECT_FROM_LEAVES : SELECT_ALL_COLUMNS})`, place: 'seq' }
}

const isTable = (db: SQLite.Database, name: string): boolean =>
  db.prepare("select 1 from sqlite_schema where name = ? and type = 'table'").get(name) !== undefined

/** Rows that are read at once. */
export const ROWS_PER_PAGE = 256

/**
 * Reads as {@link storedRows} in short reads, so that the write-ahead log can be moved. The last rows are
 * read in one transaction, in which `atEnd` is called. `behind`: what reads them. `after`: the place behind which
 * they begin; null: from the first.
 */
export function* liveRows(
  db: SQLite.Database,
  atEnd: () => void,
  behind: typeof rowsAfter = rowsAfter,
  after: number | null = null,
): Generator<StoredRow | DamagedRow> {
  try {
    const last = yield* behind(db, after)
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
 * Reads rows after a place up to a page that is not full; returns the last place. Null: from the first.
 * Throws if a page cannot be read.
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

/** Finds the readable ids of a row's users while they exist; an earlier version's database has none. */
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
