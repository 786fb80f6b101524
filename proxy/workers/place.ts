import type { Database } from '../../db/database.ts'
import type { Agreement } from './messages.ts'

/** What a gateway that is one of several workers has from the process above it (docs/operating.md#workers). */
export interface Place {
  /** Its number, in log lines. */
  readonly number: number
  /** Has it write the row of the start: as the first of a stream that all share, or in a stream of its own. */
  readonly begins: boolean
  /** Makes of the database that it has opened one that it shares. */
  readonly share: (database: Database) => Database
  /**
   * Says which configuration this gateway has loaded; resolves when it may go on. Rejects where the others have another
   * one in force and cannot change.
   */
  readonly agree: (digest: string) => Promise<Agreement>
  /** Says that it writes no more rows; resolves with whether it writes the row of the end. */
  readonly ends: () => Promise<boolean>
  /** Resolves with the metrics of all workers. */
  readonly metrics: () => Promise<string>
}
