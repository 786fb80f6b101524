import type { CallLimit, LimitTerms } from '../../limits/limit.ts'
import { isRatePeriod } from '../../limits/limit.ts'
import { timestamp } from '../../support/statement.ts'
import { budgetSpan } from '../meters/span.ts'

/** A limit as a rehearsal makes, changes or removes it. */
export interface ChangedLimit {
  /** The id that rows know it by; null: it is a new one. */
  readonly id: string | null
  readonly name: string
  /** The terms with the change; of one that is removed, those that it has. */
  readonly terms: LimitTerms & Pick<CallLimit, 'override'>
  readonly isRemoved: boolean
}

/** Changes of limits, with what the rows do not say. */
export interface LimitChanges {
  readonly limits: readonly ChangedLimit[]
  /** The ids of users by their names in the ledger, of those that are not erased. Read if a limit names principals. */
  readonly names: ReadonlyMap<string, string>
  /** Models by `provider/alias`, as they are routed now. */
  readonly aliases: ReadonlyMap<string, string>
}

/**
 * Returns the instant from which a walk counts: the beginning of the longest window that an instant falls into. RFC
 * 3339. Limits without a window begin at the instant itself, with nothing used.
 */
export function countedSince({ limits }: LimitChanges, since: string): string {
  const at = Date.parse(since)
  const begins = limits.map(({ terms: { per }, isRemoved }) => {
    if (isRemoved || per === undefined || isRatePeriod(per)) return at
    return budgetSpan(per, at)?.from ?? at
  })
  return timestamp(Math.max(0, Math.min(at, ...begins)))
}
