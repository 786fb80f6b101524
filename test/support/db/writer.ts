import { join } from 'node:path'
import SQLite from 'better-sqlite3'
import type { Test } from 'tap'
import { openSqliteDatabase, type SqliteDatabase } from '../../../db/sqlite/database.ts'
import type { Statement } from '../../../db/statement.ts'

/** A database in a file, and a second connection that writes to it, as the ledger's does at run time. */
export interface Opened {
  readonly db: SqliteDatabase
  readonly writer: SQLite.Database
  /** Runs one unit in one transaction; says how many rows each statement changed. */
  readonly run: (...statements: readonly Statement[]) => readonly number[]
}

export async function opened(t: Test): Promise<Opened> {
  const db = await openSqliteDatabase(join(t.testdir(), 'sallyport.db'))
  const writer = new SQLite(db.file, { timeout: 0 })
  t.teardown(async () => {
    writer.close()
    await db.close()
  })
  const unit = writer.transaction((statements: readonly Statement[]) =>
    statements.map(({ sql, parameters }) => writer.prepare(sql).run(...parameters).changes),
  )
  return { db, writer, run: (...statements) => unit(statements) }
}
