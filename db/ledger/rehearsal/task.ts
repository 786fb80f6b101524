import type { DecisionWindow } from './rehearse.ts'

/** The rows that a rehearsal needs. */
export interface WalkScope extends DecisionWindow {
  /** The principals whose decisions are wanted, by their names in the ledger. Null: everybody's. */
  readonly principals: readonly string[] | null
  /** True: only their calls are needed, without what these rest on. */
  readonly callsAlone?: boolean
}

export interface WalkProgress {
  readonly rows: number
  readonly of: number
}

/** Leaves in the order written, and how far the walk has come with them. */
export interface WalkedPart extends WalkProgress {
  readonly leaves: Iterable<string>
}
