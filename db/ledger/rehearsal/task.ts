import type { DecisionWindow } from './rehearse.ts'

/** The rows that a rehearsal needs. */
export interface WalkScope extends DecisionWindow {
  /**
   * The principals that all its changes are about, by their names in the ledger: decisions about others are
   * left out. Null: changes about everybody.
   */
  readonly principals: readonly string[] | null
  /** True: only their calls are needed, without what these rest on. */
  readonly callsAlone?: boolean
}

/** The progress of a walk: all rows of the ledger, not only those it needs. */
export interface WalkProgress {
  readonly rows: number
  readonly of: number
}

/**
 * The leaves of some rows, in the order in which they were written, and how far the walk has come with them.
 */
export interface WalkedPart extends WalkProgress {
  readonly leaves: Iterable<string>
}
