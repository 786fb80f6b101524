import type { LedgerStatement } from '../../support/statement.ts'
import type { CountLevel, SpanCount } from './counted.ts'

/** Counts of minutes, and the place of the last row that is in them. */
export interface MinuteCounts {
  readonly counts: readonly SpanCount[]
  readonly place: number
}

export interface CountedWindow {
  readonly level: CountLevel
  readonly since: string
  readonly until: string
}

export interface WindowCounts {
  /** One for each span of the level, unordered. A span may come twice: stored, and counted just now. */
  readonly counts: readonly SpanCount[]
  /** About how many rows of any time are too many to count for a question. */
  readonly uncounted: number
}

/**
 * Counts of the ledger's rows (docs/ledger.md#counts). Stored counts are exact up to a place; later rows are
 * counted when asked for. Both can be made again from the ledger.
 */
export interface RowCounts {
  readonly counted: () => Promise<number>
  /** Counts the rows after a place, at most `most`, as far as no row can come in between any more. */
  readonly portion: (after: number, most: number) => Promise<MinuteCounts>
  /**
   * Adds a portion to the counts up to `from`, all or none: if another process has done so, the first
   * statement changes no row.
   */
  readonly keep: (from: number, portion: MinuteCounts) => readonly LedgerStatement[]
  /** Counts a window, of one instant. Rejects with a LedgerError `busy` if too many ask at once. */
  readonly within: (window: CountedWindow, signal: AbortSignal) => Promise<WindowCounts>
  /** The place of the last row; 0 if there is none. */
  readonly last: () => Promise<number>
}
