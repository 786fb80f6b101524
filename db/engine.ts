import type { Database, LedgerReading } from './database.ts'
import type { MigrationState } from './migrate.ts'
import { type DatabaseProtection, protectionOf } from './postgres/protection.ts'

export type DatabaseLocation =
  | {
      readonly engine: 'sqlite'
      /** The path as it stands in the URL, or `:memory:`. */
      readonly file: string
    }
  | { readonly engine: 'postgres'; readonly url: string; readonly protection: DatabaseProtection }

/**
 * Reads `MCP_PROXY_DATABASE_URL`. Throws one sentence if the URL names no engine of ours, or not clearly how
 * it is protected; never the URL, which may hold a password.
 */
export function databaseLocation(url: string): DatabaseLocation {
  if (/^postgres(ql)?:\/\//.test(url)) return { engine: 'postgres', url, protection: protectionOf(url) }
  const file = /^sqlite:(.+)$/s.exec(url)?.[1]
  if (file === undefined) throw new Error(NO_DATABASE_URL)
  return { engine: 'sqlite', file }
}

/** The same for a command's argument: a URL, or the path of a SQLite file. */
export const locationOf = (source: string): DatabaseLocation =>
  /^[a-z]+:/.test(source) ? databaseLocation(source) : { engine: 'sqlite', file: source }

export const NO_DATABASE_URL =
  'MCP_PROXY_DATABASE_URL must be sqlite: and the path of a file, such as sqlite:data/sallyport.db, or postgres:// with a host and a database'

/**
 * Opens and migrates the database of a URL; only the ledger may write from then on. Throws one sentence if it
 * is not understood, cannot be opened, or is newer than ours. `onCopied`: progress of bringing a ledger of
 * before 0051 into the present form.
 */
export async function openDatabase(
  url: string,
  onCopied: (rows: number, of: number) => void = () => {},
): Promise<Database> {
  const location = databaseLocation(url)
  // Only the one that is used: the other one's driver takes memory, and time at the start.
  if (location.engine === 'sqlite') {
    const { openSqliteDatabase } = await import('./sqlite/database.ts')
    return openSqliteDatabase(location.file, onCopied)
  }
  const { openPostgresDatabase } = await import('./postgres/database.ts')
  return openPostgresDatabase(location.url)
}

/** Opens the ledger of a migrated database to read it, on a thread of the caller's. */
export async function readLedger(location: DatabaseLocation): Promise<LedgerReading> {
  if (location.engine === 'sqlite')
    return (await import('./sqlite/database.ts')).readSqliteLedger(location.file)
  const { openReadConnections } = await import('./postgres/reading.ts')
  const { postgresTreeRows } = await import('./postgres/ledger/tree-rows.ts')
  const { kysely } = openReadConnections(location.url)
  return { kysely, treeRows: postgresTreeRows(kysely), close: () => kysely.destroy() }
}

export async function databaseMigrationState(url: string): Promise<MigrationState> {
  const location = databaseLocation(url)
  if (location.engine === 'sqlite') {
    const { sqliteMigrationState } = await import('./sqlite/database.ts')
    return sqliteMigrationState(location.file)
  }
  const { postgresMigrationState } = await import('./postgres/database.ts')
  return postgresMigrationState(location.url)
}
