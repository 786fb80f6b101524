import type { CountLevel, SpanCount } from '../../../db/ledger/counts/row-counts.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { countAudit } from '../../admin/audit/audit.ts'
import { perform } from '../../admin/operation/operation.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { type ActivityTimes, WINDOWS } from './asked.ts'
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

const [MINUTE_MS, HOUR_MS, DAY_MS] = [60_000, 3_600_000, 86_400_000]

/** The lengths of time that a bar may stand for, each with the level of its counts. */
const UNITS: readonly (readonly [ms: number, level: CountLevel, name: string])[] = [
  [MINUTE_MS, 16, 'a minute'],
  [5 * MINUTE_MS, 16, '5 minutes'],
  [10 * MINUTE_MS, 15, '10 minutes'],
  [30 * MINUTE_MS, 15, '30 minutes'],
  [HOUR_MS, 13, 'an hour'],
  [4 * HOUR_MS, 13, '4 hours'],
  [12 * HOUR_MS, 13, '12 hours'],
  [DAY_MS, 10, 'a day'],
  [7 * DAY_MS, 10, '7 days'],
  [28 * DAY_MS, 10, '28 days'],
  [364 * DAY_MS, 10, '364 days'],
]
const LARGEST_UNIT: (typeof UNITS)[number] = [364 * DAY_MS, 10, '364 days']
const MAX_BARS = 72

export interface BarWindow {
  /** The time that a bar stands for. ms. */
  readonly unit: number
  readonly unitName: string
  readonly level: CountLevel
  /** The beginning of the first bar, and the end of the last one. ms since the epoch. */
  readonly from: number
  readonly to: number
  /** True: the last bar is the present one. */
  readonly goesOn: boolean
  /** True: the bars cover more than the typed times; the table does not. */
  readonly widened: boolean
}

/**
 * The window that a chart shows: the requested one, widened to whole bars; by default the last 24 hours. `byDays`:
 * the instant before which only days are counted. ms since the epoch.
 */
export function barWindow({ window, since, until }: ActivityTimes, now: number, byDays = 0): BarWindow {
  const end = until ?? now
  const begin = window === null ? (since ?? end - WINDOWS['24h']) : end - WINDOWS[window]
  const length = Math.max(end - begin, MINUTE_MS)
  const least = begin < byDays ? DAY_MS : MINUTE_MS
  const [unit, level, unitName] = UNITS.find(([ms]) => ms >= least && length <= ms * MAX_BARS) ?? LARGEST_UNIT
  const goesOn = until === null
  const to = goesOn ? (Math.floor(end / unit) + 1) * unit : Math.ceil(end / unit) * unit
  const from = Math.max(Math.floor(begin / unit) * unit, to - (MAX_BARS + 2) * unit)
  const widened = (since !== null && since !== from) || (until !== null && until !== to)
  return { unit, unitName, level, from, to: Math.max(to, from + unit), goesOn, widened }
}

/** An instant as counts of a level spell its span. */
export function spanAt(at: number, level: CountLevel): string {
  const text = new Date(at).toISOString()
  // A year of more than four digits is spelt another way, and comes after all that can be recorded.
  return text.startsWith('+') ? '~' : text.slice(0, level)
}

const REST = '0000-01-01T00:00'

/** The beginning of a span. ms since the epoch. */
const beginOf = (span: string): number => Date.parse(`${span}${REST.slice(span.length)}Z`)

export interface ChartBar {
  /** ms since the epoch. */
  readonly from: number
  readonly to: number
  readonly allowed: number
  readonly denied: number
}

export function barsOf({ from, to, unit }: BarWindow, counts: readonly SpanCount[]): readonly ChartBar[] {
  const bars = Array.from({ length: Math.round((to - from) / unit) }, (_, n) => ({
    from: from + n * unit,
    to: from + (n + 1) * unit,
    allowed: 0,
    denied: 0,
  }))
  for (const { span, status, rows } of counts) {
    const bar = bars[Math.floor((beginOf(span) - from) / unit)]
    if (bar && (status === 'allowed' || status === 'denied')) bar[status] += rows
  }
  return bars
}
