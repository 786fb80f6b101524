import { chmodSync, closeSync, existsSync, openSync } from 'node:fs'
import SQLite from 'better-sqlite3'

const OWNER_ONLY = 0o600

/**
 * The main thread's connection to the database file, made if it is not there, set up so that a commit that
 * returned is on the disk. A lock that another process holds is an error at once.
 * `:memory:` is a database of this connection alone. Throws where the file cannot be made or is no database.
 * Does NOT migrate, and does not keep the connection from writing.
 */
export function openSqlite(file: string): SQLite.Database {
  if (file !== ':memory:') keepToOwner(file)
  // No wait for another process's lock: it would stop the event loop (docs/threats.md#t10).
  const connection = new SQLite(file, { timeout: 0 })
  try {
    connection.pragma('journal_mode = WAL')
    connection.pragma('synchronous = FULL')
    connection.pragma('foreign_keys = ON')
    // REPLACE deletes rows; without this it does so behind the back of the ledger's triggers
    // (docs/threats.md#t11).
    connection.pragma('recursive_triggers = ON')
    // The schema is data too: what somebody planted in it must not call functions with side effects.
    connection.pragma('trusted_schema = OFF')
  } catch (error) {
    connection.close()
    throw error
  }
  return connection
}

/** Before SQLite sees the file: it gives -wal and -shm the mode that the file has when they are made. */
function keepToOwner(file: string): void {
  try {
    // Only ever a new file: closing a descriptor of one that SQLite has open drops every lock this process
    // holds on it.
    closeSync(openSync(file, 'wx', OWNER_ONLY))
  } catch (error) {
    if (!existsSync(file)) throw notOpened(file, error)
  }
  for (const path of [file, `${file}-wal`, `${file}-shm`]) {
    if (existsSync(path)) chmodSync(path, OWNER_ONLY)
  }
}

const notOpened = (file: string, cause: unknown): Error =>
  new Error(`the database file ${file} cannot be made: its directory must exist and be writable`, { cause })

/** Runs `work` in one transaction of this connection, so that a crash in the middle leaves nothing behind. */
export async function inTransaction(connection: SQLite.Database, work: () => Promise<void>): Promise<void> {
  connection.exec('BEGIN IMMEDIATE')
  try {
    await work()
    connection.exec('COMMIT')
  } finally {
    if (connection.inTransaction) connection.exec('ROLLBACK')
  }
}
