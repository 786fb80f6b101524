import type { DatabaseSchema } from '../../schema.ts'
import type { JsonObject } from '../../support/json.ts'
import type { LedgerStatement, RowAssertion } from '../../support/statement.ts'
import type { MeterRefusal, MeterReservation, MeterSettlement } from '../meters/meter-book.ts'

type DerivedColumn =
  | 'stream'
  | 'seq'
  | 'recorded_at'
  | 'detail'
  | 'version'
  | 'prev_hash'
  | 'row_hash'
  | 'leaf'

/**
 * The content of a row, before it has its place in the chain (docs/ledger.md#row). Absent is null, never the
 * empty string.
 */
export interface LedgerEntry extends Omit<DatabaseSchema['audit_log'], DerivedColumn> {
  /** ms since the epoch; `recorded_at` of the row. */
  readonly at: number
  /** Digests and sizes, never prompts, completions, arguments, results or secrets. Integers only. */
  readonly detail: JsonObject
}

/** Writes that are durable together or not at all: to other tables, and the rows that say so. */
export interface LedgerUnit {
  /** Conditions, asked in the unit's transaction before anything of it is written. */
  readonly assertions?: readonly RowAssertion[]
  readonly statements?: readonly LedgerStatement[]
  /**
   * The parts of limits that its call uses: all of them, or the unit is refused. Its statements are claims alone, and its
   * row leaves places for the numbers (../meters/detail.ts).
   */
  readonly reservations?: readonly MeterReservation[]
  /** The parts of limits that calls have used which have ended. Their rows leave places likewise. */
  readonly settlements?: readonly MeterSettlement[]
  readonly entries: readonly LedgerEntry[]
  /**
   * It may wait a few ms for another unit, to share its transaction: nobody's answer depends on it. Default
   * false.
   */
  readonly lazy?: boolean
  /**
   * A change by an operator follows it, such as the claim of his proof: it may wait in the room that calls
   * leave. Default: if one of its statements may change somebody's authority.
   */
  readonly ofChange?: boolean
}

export interface SealedRow {
  readonly stream: string
  readonly seq: number
  readonly hash: string
  /** The amounts used of each meter before it, in the order of its unit's reservations. Absent: it has none. */
  readonly used?: readonly number[]
}

/**
 * The reason that a unit was not stored; nothing of it was, or all of it if it is in doubt. `stale`: one of
 * its assertions found no row. `conflict`: a statement changed another number of rows than it must, or broke
 * a constraint. `duplicate`: it broke a unique one. `busy`: the line is full. `unavailable`: the database
 * cannot be written. `closed`: the ledger was closed. `over`: a limit has no room for it ({@link LimitReached}).
 */
export type LedgerErrorCode = 'stale' | 'busy' | 'unavailable' | 'conflict' | 'duplicate' | 'closed' | 'over'

export class LedgerError extends Error {
  readonly code: LedgerErrorCode
  /** True if the unit may be stored all the same: the database was lost in the middle of its commit. */
  readonly inDoubt: boolean

  constructor(code: LedgerErrorCode, message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = code
    this.inDoubt = options?.cause instanceof CommitInDoubt
  }
}

/** A unit is refused because a meter has no room for what it would use. */
export class LimitReached extends LedgerError {
  readonly over: MeterRefusal

  constructor(over: MeterRefusal) {
    super('over', `the limit ${over.limit} has no room: ${over.used} of ${over.most} are used`)
    this.over = over
  }
}

export class CommitInDoubt extends Error {
  override readonly name = 'InDoubt'
}
