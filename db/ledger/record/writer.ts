import type { LedgerStatement, RowAssertion } from '../../support/statement.ts'
import type { MeterRefusal, MeterReservation, MeterSettlement } from '../meters/meter-book.ts'
import type { RowDraft } from './draft.ts'
import type { LedgerEntry, SealedRow } from './entry.ts'

export interface LedgerWork {
  readonly assertions: readonly RowAssertion[]
  readonly statements: readonly LedgerStatement[]
  readonly reservations: readonly MeterReservation[]
  readonly settlements: readonly MeterSettlement[]
  readonly drafts: readonly RowDraft[]
}

/**
 * The result of one unit of a committed batch. `fault`: a statement that the database does not understand. `over`: a
 * meter has no room.
 */
export type WorkResult =
  | { readonly sealed: readonly SealedRow[] }
  | { readonly refused: 'stale' | 'conflict' | 'duplicate' | 'fault'; readonly message: string }
  | { readonly refused: 'over'; readonly over: MeterRefusal }

/** `detail`: of the decision's row, as it is stored. */
export type OpenDecision = Omit<LedgerEntry, 'at' | 'status' | 'detail' | 'config_digest'> & {
  readonly detail: string
}

export interface UnfinishedDecisions {
  readonly decisions: readonly OpenDecision[]
  /** Goes into the unit of their outcomes, so that nobody else writes them too. */
  readonly statements: readonly LedgerStatement[]
}

export interface LedgerWriter {
  readonly stream: string
  /** The stream's last row when the writer was opened. */
  readonly head: SealedRow | null
  /**
   * Stores a batch in one transaction, each unit whole or not at all, and resolves when it is durable.
   * Rejects if nothing of the batch was stored, and with a `CommitInDoubt` if all or nothing of it is; a
   * later batch may go through, unless {@link LedgerWriter.lost} has resolved. By then it is known.
   */
  write(batch: readonly LedgerWork[]): Promise<readonly WorkResult[]>
  /**
   * Decisions left open by earlier runs; on engines with many writers by those gone for a while, some at a
   * time.
   */
  unfinished(): Promise<readonly UnfinishedDecisions[]>
  /** Resolves once, with the reason, when the writer will never write again; never otherwise. */
  readonly lost: Promise<Error>
  /** Waits for the work under way. Nothing may be written afterwards. */
  close(): Promise<void>
}
