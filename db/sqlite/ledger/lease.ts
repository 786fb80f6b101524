import { chmodSync } from 'node:fs'
import SQLite from 'better-sqlite3'

// SHMSIZE is the full disk, met while the index of the log grew; that index is rebuilt, never trusted.
const TRANSIENT_CODES = /^SQLITE_(BUSY|LOCKED|PROTOCOL|FULL|NOMEM|IOERR_SHMSIZE)/
const STATEMENT_CODES = /^SQLITE_(ERROR|MISMATCH|RANGE|TOOBIG|MISUSE)$/

/**
 * True if the writer may go on: the database was locked or the disk full, and nothing was stored. A failed
 * fsync poisons: the next would report success for lost pages.
 */
export const isTransientSqliteError = (error: unknown): boolean =>
  error instanceof SQLite.SqliteError && TRANSIENT_CODES.test(error.code)

/** Why a unit's statement was refused; null if the error is the whole batch's. */
export function sqliteStatementRefusal(error: unknown): 'conflict' | 'duplicate' | 'fault' | null {
  if (!(error instanceof SQLite.SqliteError)) return 'fault'
  if (/^SQLITE_CONSTRAINT_(UNIQUE|PRIMARYKEY|ROWID)$/.test(error.code)) return 'duplicate'
  if (error.code.startsWith('SQLITE_CONSTRAINT')) return 'conflict'
  return STATEMENT_CODES.test(error.code) ? 'fault' : null
}

/**
 * Holds a lock next to the database until it is closed or this process ends. Throws one sentence if another
 * one holds it.
 */
export function acquireLease(file: string): SQLite.Database {
  const path = `${file}-lease`
  const lease = new SQLite(path, { timeout: 0 })
  chmodSync(path, 0o600)
  try {
    lease.pragma('journal_mode = MEMORY')
    lease.exec('begin exclusive')
    return lease
  } catch (error) {
    lease.close()
    if (!isTransientSqliteError(error)) throw error
    throw new Error(`another process writes the audit ledger of ${file}: stop it first`, { cause: error })
  }
}
