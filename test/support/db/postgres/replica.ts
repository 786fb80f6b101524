import { Client, type QueryResult } from 'pg'
import type { Test } from 'tap'
import type { Database } from '../../../../db/database.ts'
import { openDatabase } from '../../../../db/engine.ts'
import { verifyDatabase } from '../../../../db/ledger/read/read.ts'
import { type Ledger, openLedger } from '../../../../db/ledger/record/ledger.ts'
import { PRESENCE_APPLICATION_NAME } from '../../../../db/postgres/presence.ts'
import { VERSION } from '../scratch-ledger.ts'

/** One of several processes on a database, as far as the database sees them. */
export interface Replica {
  readonly database: Database
  readonly ledger: Ledger
}

/** Opens a replica. Closed with its test, whose whole ledger must verify then. */
export async function replica(t: Test, url: string): Promise<Replica> {
  const database = await openDatabase(url)
  const ledger = await openLedger({ database, version: VERSION })
  t.teardown(async () => {
    await ledger.close()
    if (!(await verifyDatabase(database.kysely)).ok) t.fail('the ledger does not verify')
    await database.close()
  })
  return { database, ledger }
}

/** Runs one statement on a connection of its own, as any tool of the database's owner could. */
export async function raw(url: string, text: string, values: unknown[] = []): Promise<QueryResult> {
  const client = new Client(url)
  await client.connect()
  try {
    return await client.query(text, values)
  } finally {
    await client.end()
  }
}

/** Ends the sessions by which all processes on a database are present. Returns how many there were. */
export async function endPresence(url: string): Promise<number> {
  const own = 'application_name = $1 and datname = current_database()'
  const ended = await raw(url, `select pg_terminate_backend(pid) from pg_stat_activity where ${own}`, [
    PRESENCE_APPLICATION_NAME,
  ])
  return ended.rowCount ?? 0
}
