import type { DecisionWindow } from './rehearse.ts'

/** The rows that a rehearsal needs. */
export interface WalkScope extends DecisionWindow {
  /**
   * The principals that all its changes are about, by their names in the ledger: decisions about others are left out.
   * Null: those about everybody.
   */
  readonly principals: readonly string[] | null
  /** Whether their calls are all that is needed, without what these rest on. */
  readonly callsAlone?: boolean
}

/** How far a walk has come: rows of the ledger, not only those that it needs. */
export interface WalkProgress {
  readonly rows: number
  readonly of: number
}

/** The leaves of some rows, in the order in which they were written, and how far the walk has come with them. */
export interface WalkedPart extends WalkProgress {
  readonly leaves: Iterable<string>
}
