import type { Compilable, Kysely } from 'kysely'
import type { AuthorityChanges } from './authority-moves.ts'
import type { RowCounts } from './ledger/counts/row-counts.ts'
import type { LedgerReader } from './ledger/read/reader.ts'
import type { LedgerWriter } from './ledger/record/writer.ts'
import type { TreeRows } from './ledger/tree/rows.ts'
import type { DatabaseSchema } from './schema.ts'
import type { NoticeChannel } from './support/notices.ts'

/**
 * A compiled query. The parameters take, in order, the places of the values that the query was built with.
 * At once on SQLite; a promise on engines behind a socket.
 */
export type PreparedLookup<R> = (...parameters: readonly unknown[]) => R | undefined | Promise<R | undefined>

/** A connection that reads. Writes go through the ledger (db/ledger), as `Statement`s. */
export interface Database {
  readonly kysely: Kysely<DatabaseSchema>
  readonly engine: 'sqlite' | 'postgres'
  /** The path as it stands in the URL, or `:memory:`; null on engines behind a socket. */
  readonly file: string | null
  /**
   * Compiles once, for the hot path. Constants of the query stand in it as literals, never as values. SQLite
   * plans a query with a join again each time: a query that every request asks has none
   * (db/principals/pins.ts). An engine behind a socket may answer from its cache, at most a moment old: for
   * decisions that are recorded with an assertion of what they rest on. `asked`: never cached.
   */
  readonly lookup: <R extends object>(query: Compilable<R>, how?: 'asked') => PreparedLookup<R>
  /**
   * True if all that look-ups have given since an instant (ms of `performance.now()`) is still so; if not,
   * the cache is empty. Rejects with DatabaseUnavailable. Absent if nothing is cached.
   */
  readonly current?: (since: number) => Promise<boolean>
  /** The changes of authority that this process has made or heard of. */
  readonly authority: AuthorityChanges
  /** Reads the ledger, however long it is, away from this connection and, on SQLite, this thread. */
  readonly audit: LedgerReader
  /** The rows of the ledger as the leaves of its tree. */
  readonly treeRows: TreeRows
  /** Numbers of rows of each kind, by spans of time. */
  readonly rowCounts: RowCounts
  /** Opens this process's half of the ledger. Rejects with one sentence if it cannot write there. */
  readonly openWriter: () => Promise<LedgerWriter>
  /**
   * Does work that only one process may do at a time, whose result all who share the database then find. On
   * SQLite there is no other process.
   */
  readonly alone: <Made>(work: () => Promise<Made>) => Promise<Made>
  /** Messages between the processes that share the database. */
  readonly notices: NoticeChannel
  /**
   * True if this process does a task for all that share the database. Ask each time, also during the task: a
   * process that was frozen learns here that another one has taken over. False until it is known.
   */
  readonly leads: (task: string) => boolean
  readonly close: () => Promise<void>
}
