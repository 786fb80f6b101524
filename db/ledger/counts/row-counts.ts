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

/** What was recorded in a window. */
export interface WindowCounts {
  /** By spans of the window's level, in no order. One may be there twice: what is kept, and what was counted just now. */
  readonly counts: readonly SpanCount[]
  /** About how many rows of the ledger, of whichever time, are not counted yet, since there are too many for a question. */
  readonly uncounted: number
}

/**
 * An engine's counts of the ledger's rows (docs/ledger.md#counts). What is kept is exact up to a place; what stands behind
 * it is counted when it is asked for. Neither is protected as the ledger is: it can be made anew from that.
 */
export interface RowCounts {
  /** The place up to which rows are counted. */
  readonly counted: () => Promise<number>
  /** Counts the rows behind a place, at most `most`, as far as no row can come in between any more. */
  readonly portion: (after: number, most: number) => Promise<MinuteCounts>
  /**
   * The statements that add a portion to what is kept up to `from`, all or none: where another process has done so
   * meanwhile, the first changes no row and the unit is refused.
   */
  readonly keep: (from: number, portion: MinuteCounts) => readonly LedgerStatement[]
  /** Counts a window, of one instant. Rejects with a LedgerError `busy` where too many ask at once. */
  readonly within: (window: CountedWindow, signal: AbortSignal) => Promise<WindowCounts>
  /** The place of the last row; 0 where there is none. */
  readonly last: () => Promise<number>
}
