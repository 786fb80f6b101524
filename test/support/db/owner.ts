import SQLite from 'better-sqlite3'
import { Client } from 'pg'

/** Runs statements on a database as its owner may, past the gateway that has it open. */
export async function asOwner(url: string, ...statements: readonly string[]): Promise<void> {
  if (url.startsWith('sqlite:')) {
    const database = new SQLite(url.slice('sqlite:'.length), { timeout: 5_000 })
    for (const statement of statements) database.exec(statement)
    database.close()
    return
  }
  const client = new Client(url)
  await client.connect()
  for (const statement of statements) await client.query(statement)
  await client.end()
}
