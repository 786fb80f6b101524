import { isObject } from '../../support/json.ts'
import type { MeterSettlement } from './meter-book.ts'
import { UNDER_WAY } from './span.ts'

interface DecisionRow {
  readonly principal_id: string | null
  /** Canonical JSON, as rows have it. */
  readonly detail: string
}

/** All that a call held when its process died. */
interface HeldUse {
  readonly settlements: readonly MeterSettlement[]
  /** Micro-USD; null: no limit of cost applied to it. */
  readonly microusd: number | null
}

const NOTHING: HeldUse = { settlements: [], microusd: null }

/**
 * Returns what a decision holds whose outcome nobody knows: all that it has reserved is used up. A member that is not
 * as decisions write it is passed over.
 */
export function heldByDecision({ principal_id: principal, detail }: DecisionRow): HeldUse {
  // Most rows have none.
  if (!detail.includes('"limits":')) return NOTHING
  const read: unknown = JSON.parse(detail)
  if (!isObject(read) || !Array.isArray(read.limits)) return NOTHING
  const { limits, held_microusd: held } = read
  return {
    settlements: limits.flatMap((one: unknown) => settlementOf(one, principal ?? '')),
    microusd: typeof held === 'number' ? held : null,
  }
}

function settlementOf(held: unknown, principal: string): readonly MeterSettlement[] {
  if (!isObject(held)) return []
  const { id, each, span, took } = held
  if (typeof id !== 'string' || typeof span !== 'string' || typeof took !== 'number') return []
  const charged = span === UNDER_WAY ? 0 : took
  return [{ limit: id, who: each === true ? principal : '', span, took, charged }]
}
