import SQLite from 'better-sqlite3'

// SHMSIZE is the full disk, met while the index of the log grew; that index is rebuilt, never trusted.
const TRANSIENT_CODES = /^SQLITE_(BUSY|LOCKED|PROTOCOL|FULL|NOMEM|IOERR_SHMSIZE)/
const STATEMENT_CODES = /^SQLITE_(ERROR|MISMATCH|RANGE|TOOBIG|MISUSE)$/

/**
 * Returns whether the writer may go on after this error: the database was locked or the disk full, and
 * nothing was stored. Everything else poisons. After a failed fsync above all: the next one would report
 * success for pages that were lost.
 */
export const isTransientSqliteError = (error: unknown): boolean =>
  error instanceof SQLite.SqliteError && TRANSIENT_CODES.test(error.code)

/**
 * Returns why a unit's own statement was refused; null if the error is the database's and so the whole
 * batch's.
 */
export function sqliteStatementRefusal(error: unknown): 'conflict' | 'duplicate' | 'fault' | null {
  if (!(error instanceof SQLite.SqliteError)) return 'fault'
  if (/^SQLITE_CONSTRAINT_(UNIQUE|PRIMARYKEY|ROWID)$/.test(error.code)) return 'duplicate'
  if (error.code.startsWith('SQLITE_CONSTRAINT')) return 'conflict'
  return STATEMENT_CODES.test(error.code) ? 'fault' : null
}
