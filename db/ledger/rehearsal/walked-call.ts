import type { CompiledScope } from '../../limits/scope.ts'
import type { MeterReservation } from '../meters/meter-book.ts'
import type { ChangedLimit } from './limit-changes.ts'
import type { LimitedRow } from './limit-fit.ts'
import type { CountedCall, LimitTally } from './limit-tally.ts'
import type { EndedUsage, RecordedHold } from './recorded-usage.ts'
import type { WalkedMeters } from './walked-meters.ts'

/** The effect of the changed limits on a call. */
export type LimitFate = 'refused' | 'allowed' | { readonly undecidable: string }

/** The changed limits that the calls of one kind may come under. */
export interface LimitedKind {
  readonly row: LimitedRow
  /** `open`: why it is not known whether they do; null: they do, as far as their models fit. */
  readonly limits: readonly { readonly run: LimitRun; readonly open: string | null }[]
}

export interface LimitRun {
  readonly change: ChangedLimit
  readonly scope: CompiledScope
  readonly meters: WalkedMeters
  readonly tally: LimitTally
}

/** A call on its way through the queue. */
export interface WalkedCall extends CountedCall {
  readonly kind: LimitedKind
  readonly atMs: number
  readonly holds: readonly RecordedHold[]
  /** `provider/model` of each provider that could be asked; null: its row does not say it. */
  readonly routed: readonly string[] | null
  /** The limit that refused it; null: it was allowed. */
  readonly refusedBy: string | null
  readonly tell: (fate: LimitFate) => void
  usage: EndedUsage | null
  /** The places that it has in meters until it ends. */
  claims: readonly WalkedClaim[]
}

export interface WalkedClaim {
  readonly run: LimitRun
  readonly reservation: MeterReservation
}

export interface WalkedEvent {
  readonly call: WalkedCall
  readonly isEnd: boolean
}
