import { Kysely, PostgresDialect } from 'kysely'
import { Pool } from 'pg'
import { AuthorityMoves } from '../authority-moves.ts'
import type { Database } from '../database.ts'
import { answerTo, LedgerReader } from '../ledger/read/reader.ts'
import { type MigrationState, migrateToLatest, migrationState, pendingMigrations } from '../migrate.ts'
import type { Schema } from '../schema.ts'
import { messageOf } from '../support/error-message.ts'
import { AUTHORITY } from '../support/notices.ts'
import { migratingConfig, withClient } from './connection.ts'
import { Generation } from './generation.ts'
import { KeptLookups } from './kept-lookups.ts'
import { Leads } from './leads.ts'
import { TAKE_ALONE } from './ledger/locks.ts'
import { placedPages } from './ledger/placed-rows.ts'
import { rowCounts } from './ledger/row-counts.ts'
import { treeRows } from './ledger/tree-rows.ts'
import { openPostgresWriter } from './ledger/writer.ts'
import { MIGRATIONS } from './migrations.ts'
import { PostgresNotices } from './notices.ts'
import { Presence } from './presence.ts'
import { openReading } from './reading.ts'
import { TextByBytes } from './text-by-bytes.ts'

/** Opens a database behind a URL `postgres://…`. Any number of processes may. */
export async function openPostgresDatabase(url: string): Promise<Database> {
  const { pool, kysely } = openReading(url)
  try {
    if ((await pendingMigrations(kysely, MIGRATIONS)).length > 0) await migrate(url)
  } catch (error) {
    await kysely.destroy()
    throw new Error(`the database cannot be opened: ${messageOf(error)}`, { cause: error })
  }
  const { presence, notices, leads, lookups, authority } = companyOf(url, pool)
  return {
    kysely,
    engine: 'postgres',
    file: null,
    lookup: (query, how) => (how === 'asked' ? lookups.asked(query) : lookups.kept(query)),
    current: (since) => lookups.current(since),
    authority,
    audit: new LedgerReader({
      ask: (question, signal) => answerTo(kysely, question, signal, placedPages),
      close: () => Promise.resolve(),
    }),
    treeRows: treeRows(kysely),
    rowCounts: rowCounts(kysely),
    openWriter: () => openPostgresWriter(url),
    alone: (work) => alone(url, work),
    notices,
    leads: (task) => leads.holds(task),
    close: async () => {
      await presence.close()
      await kysely.destroy()
    },
  }
}

/** What a process has to do with the others: nothing, until it hears or leads anything. */
function companyOf(url: string, pool: Pool) {
  const authority = new AuthorityMoves()
  const generation = new Generation((number) => {
    authority.move()
    notices.deliver(AUTHORITY, String(number))
  })
  const notices: PostgresNotices = new PostgresNotices(
    () => presence,
    (number) => generation.take(number),
  )
  const leads: Leads = new Leads(() => presence)
  const presence = new Presence(url, [notices, generation, leads])
  const lookups = new KeptLookups(pool, presence, generation, authority)
  return { presence, notices, leads, lookups, authority }
}

/** Reads which migrations the database has run. */
export async function postgresMigrations(url: string): Promise<MigrationState> {
  const { kysely } = openReading(url)
  try {
    return await migrationState(kysely, MIGRATIONS)
  } finally {
    await kysely.destroy()
  }
}

/** As many processes as start at once: one migrates, and the others find nothing left to do. */
async function migrate(url: string): Promise<void> {
  const dialect = new PostgresDialect({ pool: new Pool(migratingConfig(url)) })
  const kysely = new Kysely<Schema>({ dialect, plugins: [new TextByBytes()] })
  try {
    await migrateToLatest(kysely, MIGRATIONS)
  } finally {
    await kysely.destroy()
  }
}

/** The time that a process may wait for the others that start beside it. ms. */
const ALONE_MS = 60_000

/** The lock ends with its session. */
const alone = <Made>(url: string, work: () => Promise<Made>): Promise<Made> =>
  withClient(url, ALONE_MS, async (client) => {
    await client.query(TAKE_ALONE)
    return work()
  })
