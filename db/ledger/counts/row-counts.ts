import type { LedgerStatement } from '../../support/statement.ts'
import type { CountLevel, SpanCount } from './counted.ts'

/** Counts of minutes, and the place of the last row that is in them. */
export interface MinuteCounts {
  readonly counts: readonly SpanCount[]
  readonly place: number
}

/** A window of time in whole spans of a level: from `since` on, and before `until`. */
export interface CountedWindow {
  readonly level: CountLevel
  readonly since: string
  readonly until: string
}

/** The counts of a window. */
export interface WindowCounts {
  /**
   * One for each span of the window's level, unordered. A span may come twice: stored, and counted just now.
   */
  readonly counts: readonly SpanCount[]
  /**
   * About how many rows of the ledger, from any time, are not counted yet, since they are too many for a
   * question.
   */
  readonly uncounted: number
}

/**
 * An engine's counts of the ledger's rows (docs/ledger.md#counts). Stored counts are exact up to a place;
 * later rows are counted when they are asked for. Neither is protected as the ledger is: both can be made
 * again from it.
 */
export interface RowCounts {
  /** The place up to which rows are counted. */
  readonly counted: () => Promise<number>
  /** Counts the rows after a place, at most `most`, as far as no row can come in between any more. */
  readonly portion: (after: number, most: number) => Promise<MinuteCounts>
  /**
   * The statements that add a portion to the counts up to `from`, all or none: if another process has done so
   * meanwhile, the first changes no row and the unit is refused.
   */
  readonly keep: (from: number, portion: MinuteCounts) => readonly LedgerStatement[]
  /** Counts a window, of one instant. Rejects with a LedgerError `busy` if too many ask at once. */
  readonly within: (window: CountedWindow, signal: AbortSignal) => Promise<WindowCounts>
  /** The place of the last row; 0 if there is none. */
  readonly last: () => Promise<number>
}
