import { readFile } from 'node:fs/promises'
import { databaseLocation } from '../../../db/engine.ts'
import { raw } from './postgres/replica.ts'
import { withRaw } from './scratch-ledger.ts'

/** Runs one statement on a connection of its own, past everything of ours, as any tool of the owner could. */
export async function past(url: string, statement: string): Promise<void> {
  const location = databaseLocation(url)
  if (location.engine === 'sqlite') withRaw(location.file, (db) => db.exec(statement))
  else await raw(url, statement)
}

/** All that a database holds: the bytes of its file, or every row of every table. */
export async function contentsOf(url: string): Promise<string> {
  const location = databaseLocation(url)
  if (location.engine === 'sqlite') return readFile(location.file, 'latin1')
  const { rows: tables } = await raw(
    url,
    `select tablename as name from pg_tables where schemaname = 'public'`,
  )
  const texts: string[] = []
  for (const { name } of tables) {
    const { rows } = await raw(url, `select ${name}::text as text from ${name}`)
    texts.push(...rows.map(({ text }) => text))
  }
  return texts.join('\n')
}
