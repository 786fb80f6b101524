import type { Arrival, CallSettlement, Receipt, SummarisedRefusal } from './arrival.ts'
import type { Refusal } from './refusal.ts'

/** The name of the recorder, in `refused_by` if a record could not be written. */
export const RECORDER = 'audit'

/**
 * The error of a recorder that found the authority changed which a call was judged by. Nothing was recorded.
 */
export class StaleAuthority extends Error {}

export interface RefusedBy {
  readonly by: string
  readonly passed: readonly string[]
}

/**
 * Makes a decision durable before anything acts on it. Rejects if it cannot, with {@link StaleAuthority} if
 * the call was overtaken by a change of authority; then nothing may act. `settled` is called once for each
 * call that it has recorded as allowed, when the call has ended.
 */
export interface Recorder<in Facts extends Arrival> {
  readonly allowed: (facts: Facts) => Promise<Receipt | null>
  readonly refused: (
    facts: Arrival & Partial<Facts>,
    refusal: Refusal,
    refusedBy: RefusedBy,
  ) => Promise<Receipt | SummarisedRefusal | null>
  /** Tells whether a judgement's look-ups are still so; false: later look-ups give the present. */
  readonly current?: ((facts: Arrival & Partial<Facts>) => Promise<boolean>) | undefined
  readonly settled?: (facts: Facts, settlement: CallSettlement) => void
}
