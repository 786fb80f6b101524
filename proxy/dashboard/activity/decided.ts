import type { Counted } from '../../../db/ledger/counts/counted.ts'
import type { Administered } from '../../../plugins/operators/operator.ts'
import { countAudit } from '../../admin/audit/counts.ts'
import { perform } from '../../admin/operation/operation.ts'
import type { Dashboard } from '../frame/dashboard.ts'
import { type BarWindow, spanAt } from './bars.ts'
import { NOISE } from './calls.ts'

/** What of decisions is counted. */
interface Which {
  readonly action?: string
  readonly status?: string
  readonly noise: boolean
}

/** How many decisions there were in a window. */
export interface Decided {
  readonly counts: readonly Counted[]
  readonly allowed: number
  readonly denied: number
  /** About how many newer rows are not counted yet. */
  readonly uncounted: number
}

/** Counts decisions, all of them: as the API would list them, by status, in the same window. Demands `admin.audit`. */
export async function decidedIn(
  { context }: Pick<Dashboard, 'context'>,
  facts: Administered,
  { level, from, to }: BarWindow,
  { action, status, noise }: Which,
): Promise<Decided> {
  const query = { level, since: spanAt(from, level), until: spanAt(to, level) }
  const { value } = await perform(countAudit, context, { query }, facts)
  const counts = value.counts.filter(
    (one) =>
      (one.status === 'allowed' || one.status === 'denied') &&
      (status === undefined || one.status === status) &&
      (action === undefined || one.action === action) &&
      (noise || !NOISE.has(one.action)),
  )
  const sum = (of: string): number => counts.reduce((all, one) => all + (one.status === of ? one.rows : 0), 0)
  return { counts, allowed: sum('allowed'), denied: sum('denied'), uncounted: value.uncounted }
}
