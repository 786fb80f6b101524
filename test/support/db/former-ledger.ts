import { join } from 'node:path'
import SQLite from 'better-sqlite3'
import { Kysely, SqliteDialect } from 'kysely'
import { Migrator } from 'kysely/migration'
import type { LeafVersion, StoredRow } from '../../../db/ledger/record/leaf.ts'
import { openHeadFile } from '../../../db/sqlite/ledger/head-file.ts'
import { SQLITE_MIGRATIONS } from '../../../db/sqlite/migrations.ts'
import { chainer } from './history.ts'
import { AT, entry } from './scratch-ledger.ts'

/** A database as version 0.6.4 leaves it, with a ledger of these rows and the head beside it. */
export async function formerDatabase(directory: string, rows: readonly StoredRow[]): Promise<string> {
  const file = join(directory, 'sallyport.db')
  const connection = new SQLite(file)
  connection.pragma('journal_mode = WAL')
  const db = new Kysely({ dialect: new SqliteDialect({ database: connection }) })
  const migrator = new Migrator({ db, provider: { getMigrations: async () => ({ ...SQLITE_MIGRATIONS }) } })
  const { error } = await migrator.migrateTo('0050_record')
  if (error !== undefined) throw error
  addFormerRows(connection, rows)
  await db.destroy()
  const last = rows.at(-1)
  const heads = openHeadFile(file)
  if (last) heads.note({ seq: last.seq, hash: last.row_hash })
  heads.close()
  return file
}

/** Adds rows to a ledger of that form. */
export function addFormerRows(db: SQLite.Database, rows: readonly StoredRow[]): void {
  const names = Object.keys(rows[0] ?? {})
  if (names.length === 0) return
  const places = names.map((name) => `@${name}`).join(', ')
  const insert = db.prepare<[StoredRow]>(`insert into audit_log (${names.join(', ')}) values (${places})`)
  db.transaction(() => {
    for (const row of rows) insert.run(row)
  })()
}

/** A chain of calls, the first half of them in rows of version 1. None names its authority, as one of version 2 must. */
export function formerRows(count: number): readonly StoredRow[] {
  const next = chainer()
  return Array.from({ length: count }, (_, index) => {
    const version: LeafVersion = index < count / 2 ? 1 : 2
    const values = {
      at: AT + index,
      request_id: `req_${index >> 1}`,
      detail: { path: '/é"\u0001', index, tall: { deep: [[null, true]] } },
    }
    return next(
      entry({ ...values, ...(index % 2 === 1 && { status: 'success', provider: 'openai' }) }),
      version,
    )
  })
}
