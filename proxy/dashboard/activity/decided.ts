import type { SpanCount } from '../../../db/ledger/counts/counted.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { countAudit } from '../../admin/audit/counts.ts'
import { perform } from '../../admin/operation/operation.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { type BarWindow, spanAt } from './bars.ts'
import { NOISE_ACTIONS } from './calls.ts'

interface DecisionFilter {
  readonly action?: string
  readonly status?: string
  readonly noise: boolean
}

export interface DecisionCounts {
  readonly counts: readonly SpanCount[]
  readonly allowed: number
  readonly denied: number
  /** About how many newer rows are not counted yet. */
  readonly uncounted: number
}

/** Counts decisions by status, as the API would list them in the same window. Demands `admin.audit`. */
export async function countDecisions(
  { context }: Pick<DashboardContext, 'context'>,
  facts: AdministrationFacts,
  { level, from, to }: BarWindow,
  { action, status, noise }: DecisionFilter,
): Promise<DecisionCounts> {
  const query = { level, since: spanAt(from, level), until: spanAt(to, level) }
  const { value } = await perform(countAudit, context, { query }, facts)
  const counts = value.counts.filter(
    (one) =>
      (one.status === 'allowed' || one.status === 'denied') &&
      (status === undefined || one.status === status) &&
      (action === undefined || one.action === action) &&
      (noise || !NOISE_ACTIONS.has(one.action)),
  )
  const sum = (of: string): number => counts.reduce((all, one) => all + (one.status === of ? one.rows : 0), 0)
  return { counts, allowed: sum('allowed'), denied: sum('denied'), uncounted: value.uncounted }
}
