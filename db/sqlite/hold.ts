import { chmodSync } from 'node:fs'
import SQLite from 'better-sqlite3'

/** Keeps the files held by this process from garbage collection. */
const heldFiles: SQLite.Database[] = []

/** Holds a file for this process alone until that ends. Throws if another one holds it. Writes nothing. */
export function holdFileExclusively(file: string): void {
  const connection = new SQLite(file, { timeout: 0 })
  try {
    chmodSync(file, 0o600)
    connection.exec('BEGIN EXCLUSIVE')
  } catch (error) {
    connection.close()
    throw new Error(`${file} is held by another process`, { cause: error })
  }
  heldFiles.push(connection)
}
