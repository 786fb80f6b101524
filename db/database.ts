import type SQLite from 'better-sqlite3'
import { type Compilable, Kysely, SqliteDialect } from 'kysely'
import type { LedgerReader } from './audit/reader.ts'
import { type DatabaseLocation, databaseLocation, ledgerReader } from './engine.ts'
import { migrateToLatest, pendingMigrations } from './migrate.ts'
import type { Schema } from './schema.ts'
import { migrateLedger, type OnCopied } from './sqlite/ledger/form/rebuild.ts'
import { inTransaction, openSqlite } from './sqlite/open.ts'

/**
 * A compiled query. The parameters take, in order, the places of the values that the query was built with.
 * At once on SQLite; a promise on engines behind a socket.
 */
export type Lookup<R> = (...parameters: readonly unknown[]) => R | undefined | Promise<R | undefined>

/**
 * A connection that reads. What is written goes through the ledger (db/audit), as `Statement`s. The ledger
 * opens a connection of its own at `file`; `:memory:` is seen by this connection alone.
 */
export interface Database extends DatabaseLocation {
  readonly kysely: Kysely<Schema>
  /**
   * Compiles once, for the hot path. Constants of the query stand in it as literals, never as values.
   * SQLite plans a query with a join anew each time: one that is asked on every request has none
   * (db/principals/pins.ts).
   */
  readonly lookup: <R>(query: Compilable<R>) => Lookup<R>
  /** Reads the ledger, however long it is, away from this connection and this thread. */
  readonly audit: LedgerReader
  readonly close: () => Promise<void>
}

/**
 * Opens the database at `sqlite:<path>` or `sqlite::memory:`, migrates it, and from then on refuses to write
 * through it. Throws one sentence for the operator where the URL is not understood, the file cannot be
 * opened, or the schema is newer than ours. `onCopied`: the progress where a ledger of before 0051 is brought into
 * the present form, which takes a minute for a few million rows.
 */
export async function openDatabase(url: string, onCopied: OnCopied = () => {}): Promise<Database> {
  const location = databaseLocation(url)
  const connection = openSqlite(location.file)
  const kysely = new Kysely<Schema>({ dialect: new SqliteDialect({ database: connection }) })
  try {
    // Asked first: a database that is up to date is opened without a lock, while another process writes.
    if ((await pendingMigrations(kysely)).length > 0) {
      const migrate = () => inTransaction(connection, () => migrateToLatest(kysely))
      await migrateLedger(connection, location.file, migrate, onCopied)
    }
    connection.pragma('query_only = ON')
  } catch (error) {
    connection.close()
    throw error
  }
  const audit = ledgerReader(location, kysely)
  return {
    kysely,
    ...location,
    lookup: (query) => prepared(connection, query),
    audit,
    close: async () => {
      await audit.close()
      await kysely.destroy()
    },
  }
}

function prepared<R>(connection: SQLite.Database, query: Compilable<R>): Lookup<R> {
  const statement = connection.prepare<unknown[], R>(query.compile().sql)
  return statement.get.bind(statement)
}
