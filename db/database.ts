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

/** A connection that reads. What is written goes through the ledger (db/ledger), as `Statement`s. */
export interface Database {
  readonly kysely: Kysely<DatabaseSchema>
  readonly engine: 'sqlite' | 'postgres'
  /** The path as it stands in the URL, or `:memory:`; null on engines behind a socket. */
  readonly file: string | null
  /**
   * Compiles once, for the hot path. Constants of the query stand in it as literals, never as values.
   * SQLite plans a query with a join anew each time: one that is asked on every request has none
   * (db/principals/pins.ts). An engine behind a socket may give what it has kept, which is a moment old at most: for
   * decisions that are recorded with an assertion of what they rest on. `asked`: never.
   */
  readonly lookup: <R extends object>(query: Compilable<R>, how?: 'asked') => PreparedLookup<R>
  /**
   * Where look-ups give what was kept: whether all that they have given since an instant (ms of `performance.now()`) is
   * so now. Where it is not, nothing is kept any more. Rejects with DatabaseUnavailable. Absent where all are asked.
   */
  readonly current?: (since: number) => Promise<boolean>
  /** The changes of what decisions are made by that this process has made or heard of. */
  readonly authority: AuthorityChanges
  /** Reads the ledger, however long it is, away from this connection and, on SQLite, this thread. */
  readonly audit: LedgerReader
  /** The rows of the ledger as the leaves of its tree. */
  readonly treeRows: TreeRows
  /** How many rows there are of each kind, by spans of time. */
  readonly rowCounts: RowCounts
  /** Opens this process's half of the ledger. Rejects with one sentence where it cannot write there. */
  readonly openWriter: () => Promise<LedgerWriter>
  /**
   * Does what only one process at a time may: to make what all who share the database then find. On SQLite there is
   * no other process.
   */
  readonly alone: <Made>(work: () => Promise<Made>) => Promise<Made>
  /** What the processes that share the database tell each other. */
  readonly notices: NoticeChannel
  /**
   * Whether this process is the one that does a task for all that share the database. Asked each time, also while the
   * task is done: a process that was frozen learns here that another one has taken it over. False until it is known.
   */
  readonly leads: (task: string) => boolean
  readonly close: () => Promise<void>
}
