import { chmodSync } from 'node:fs'
import SQLite from 'better-sqlite3'
import { isTransientSqliteError } from './errors.ts'

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
