import { chmodSync, closeSync, existsSync, openSync } from 'node:fs'
import SQLite from 'better-sqlite3'
import { type Compilable, Kysely, SqliteDialect } from 'kysely'
import { AuthorityChanges } from '../authority-moves.ts'
import type { Database, LedgerReading, PreparedLookup } from '../database.ts'
import { answerTo, LedgerReader } from '../ledger/read/reader.ts'
import { unreadableSegment } from '../ledger/tree/rows.ts'
import { type MigrationState, migrateToLatest, migrationState, pendingMigrations } from '../migrate.ts'
import type { DatabaseSchema } from '../schema.ts'
import { NO_NOTICES } from '../support/notices.ts'
import { ThreadPool } from '../support/thread.ts'
import { migrateLedger, type OnCopied } from './ledger/form/rebuild.ts'
import { openReadOnly } from './ledger/rows.ts'
import { openSqliteWriter } from './ledger/thread.ts'
import { sqliteRowCounts, sqliteTreeRows } from './ledger/tree-rows.ts'
import { isMigrated, SQLITE_MIGRATIONS } from './migrations.ts'
import type { OpenedLedger, ReaderTasks } from './reader.ts'

const OWNER_ONLY = 0o600

/**
 * The main thread's connection to a file, made if it is not there: a commit that returned is on the disk, and
 * another process's lock is an error at once. Throws if the file cannot be made or is no database. Does NOT
 * migrate, and can write.
 */
export function openSqlite(file: string): SQLite.Database {
  if (file !== ':memory:') keepToOwner(file)
  // No wait for another process's lock: it would stop the event loop (docs/threats.md#t10).
  const connection = new SQLite(file, { timeout: 0 })
  try {
    connection.pragma('journal_mode = WAL')
    connection.pragma('synchronous = FULL')
    connection.pragma('foreign_keys = ON')
    // REPLACE deletes rows; without this it does so unseen by the ledger's triggers (docs/threats.md#t11).
    connection.pragma('recursive_triggers = ON')
    // The schema is data too: objects planted in it must not call functions with side effects.
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
  new Error(`the database file ${file} cannot be created: its directory must exist and be writable`, {
    cause,
  })

/** Runs `work` in one transaction of this connection, so that a crash in the middle leaves nothing behind. */
async function inTransaction(connection: SQLite.Database, work: () => Promise<void>): Promise<void> {
  connection.exec('BEGIN IMMEDIATE')
  try {
    await work()
    connection.exec('COMMIT')
  } finally {
    if (connection.inTransaction) connection.exec('ROLLBACK')
  }
}

export interface SqliteDatabase extends Database {
  readonly file: string
}

/** Opens the database in a file, or in memory for this connection alone. The ledger opens its own. */
export async function openSqliteDatabase(
  file: string,
  onCopied: OnCopied = () => {},
): Promise<SqliteDatabase> {
  const connection = openSqlite(file)
  const kysely = new Kysely<DatabaseSchema>({ dialect: new SqliteDialect({ database: connection }) })
  try {
    // Asked first: a database that is up to date is opened without a lock, while another process writes.
    if (!isMigrated(connection) && (await pendingMigrations(kysely, SQLITE_MIGRATIONS)).length > 0) {
      const migrate = () => inTransaction(connection, () => migrateToLatest(kysely, SQLITE_MIGRATIONS))
      await migrateLedger(connection, file, migrate, onCopied)
    }
    connection.pragma('query_only = ON')
  } catch (error) {
    connection.close()
    throw error
  }
  const archive = { path: null }
  const audit = ledgerReader(file, kysely, archive)
  return {
    kysely,
    engine: 'sqlite',
    file,
    lookup: (query) => prepareLookup(connection, query),
    authority: new AuthorityChanges(),
    audit,
    archive,
    treeRows: sqliteTreeRows(kysely, audit),
    rowCounts: sqliteRowCounts(kysely, audit),
    openWriter: () => openSqliteWriter(file),
    alone: (work) => work(),
    notices: NO_NOTICES,
    leads: () => true,
    close: async () => {
      await audit.close()
      await kysely.destroy()
    },
  }
}

/** Opens the rows of a file to read them, on a thread of the caller's. */
export function readSqliteLedger(file: string): LedgerReading {
  const connection = openReadOnly(file)
  // A reader asks for one page after the other by the same few statements.
  const known = new Map<string, SQLite.Statement>()
  const prepare = (text: string): SQLite.Statement => {
    const statement = known.get(text) ?? connection.prepare(text)
    known.set(text, statement)
    return statement
  }
  const database = { prepare, close: () => connection.close() }
  const kysely = new Kysely<DatabaseSchema>({ dialect: new SqliteDialect({ database }) })
  const reader = new LedgerReader({
    ask: (question, signal) => answerTo(kysely, question, signal),
    close: () => Promise.resolve(),
  })
  return { kysely, treeRows: sqliteTreeRows(kysely, reader), close: () => kysely.destroy() }
}

/** Reads which migrations a file has run. A missing file has run none, and stays away. */
export async function sqliteMigrationState(file: string): Promise<MigrationState> {
  const connection = new SQLite(existsSync(file) ? file : ':memory:', { readonly: existsSync(file) })
  const kysely = new Kysely<DatabaseSchema>({ dialect: new SqliteDialect({ database: connection }) })
  try {
    return await migrationState(kysely, SQLITE_MIGRATIONS)
  } finally {
    await kysely.destroy()
  }
}

function prepareLookup<R>(connection: SQLite.Database, query: Compilable<R>): PreparedLookup<R> {
  const statement = connection.prepare<unknown[], R>(query.compile().sql)
  return statement.get.bind(statement)
}

/** The time without a question after which the thread that reads is let go. ms. */
const READER_IDLE_MS = 10_000

/** One thread for all that the process opens: its start costs a fifth of a second of CPU. */
const readerThread = new ThreadPool<ReaderTasks>(import.meta, './reader', {
  name: 'the reader of the ledger',
  idleMs: READER_IDLE_MS,
  refusal: unreadableSegment,
  // Its answers give way to each other.
  maxTasksPerThread: Number.POSITIVE_INFINITY,
})
let opened = 0

/** Reads on the thread with a connection of its own, opened when asked. A database in memory is read here. */
function ledgerReader(
  file: string,
  kysely: Kysely<DatabaseSchema>,
  archive: SqliteDatabase['archive'],
): LedgerReader {
  if (file === ':memory:') {
    return new LedgerReader(
      {
        ask: (question, signal) => answerTo(kysely, question, signal),
        close: () => Promise.resolve(),
      },
      archive,
    )
  }
  opened += 1
  const ledger: OpenedLedger = { nth: opened, file }
  const closed = new AbortController()
  return new LedgerReader(
    {
      ask: (question, signal) =>
        readerThread.stream(
          'answer',
          { ledger, question },
          { signal: AbortSignal.any([closed.signal, signal]) },
        ),
      close: async () => {
        closed.abort(new Error('the database is closed'))
        // A thread that ends meanwhile has closed all of its own.
        if (readerThread.isRunning) await readerThread.ask('close', ledger).catch(() => {})
      },
    },
    archive,
  )
}
