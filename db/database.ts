import type { Compilable, Kysely } from 'kysely'
import type { AuthorityChanges } from './authority-moves.ts'
import type { RowCounts } from './ledger/counts/row-counts.ts'
import type { ArchiveFolder } from './ledger/read/find.ts'
import type { LedgerReader } from './ledger/read/reader.ts'
import type { LedgerWriter } from './ledger/record/writer.ts'
import type { TreeRows } from './ledger/tree/rows.ts'
import type { DatabaseSchema } from './schema.ts'
import type { NoticeChannel } from './support/notices.ts'

/**
 * Parameters take, in order, the places of the values that the query was built with. A promise on engines
 * behind a socket.
 */
export type PreparedLookup<R> = (...parameters: readonly unknown[]) => R | undefined | Promise<R | undefined>

/** The rows of the ledger and what is beside them, to be read by themselves. */
export type LedgerReading = Pick<Database, 'kysely' | 'treeRows' | 'close'>

/** A connection that reads. Writes go through the ledger (db/ledger), as `Statement`s. */
export interface Database {
  readonly kysely: Kysely<DatabaseSchema>
  readonly engine: 'sqlite' | 'postgres'
  /** The path as it stands in the URL, or `:memory:`; null on engines behind a socket. */
  readonly file: string | null
  /**
   * Compiles once, for the hot path. Constants must stand in the query as literals. SQLite plans a join again
   * each time, so hot queries have none. An engine behind a socket may answer from its cache, a moment old:
   * for decisions recorded with an assertion. `asked`: never cached.
   */
  readonly lookup: <R extends object>(query: Compilable<R>, how?: 'asked') => PreparedLookup<R>
  /**
   * True if all look-ups since an instant (ms of `performance.now()`) still hold; else the cache is empty.
   * Rejects with DatabaseUnavailable. Absent if nothing is cached.
   */
  readonly current?: (since: number) => Promise<boolean>
  readonly authority: AuthorityChanges
  /** Reads the ledger, however long it is, away from this connection and, on SQLite, this thread. */
  readonly audit: LedgerReader
  /** The folder into which reading the ledger goes on. Set by whoever reads the configuration. */
  readonly archive: ArchiveFolder
  /** The rows of the ledger as the leaves of its tree. */
  readonly treeRows: TreeRows
  readonly rowCounts: RowCounts
  readonly openWriter: () => Promise<LedgerWriter>
  /** Does work that one process may do at a time, whose result all who share the database then find. */
  readonly alone: <Made>(work: () => Promise<Made>) => Promise<Made>
  readonly notices: NoticeChannel
  /**
   * True if this process does a task for all that share the database. Ask also during the task: a frozen
   * process learns here that another has taken over. False until it is known.
   */
  readonly leads: (task: string) => boolean
  /** The time by the server's clock; null while it is not known. Absent on engines of this machine. */
  readonly serverClock?: () => number | null
  readonly close: () => Promise<void>
}
