import { timestamp } from '../../support/statement.ts'

/** The windows of the UTC calendar that a budget is for; `ever`: one without an end. */
export type BudgetWindow = 'hour' | 'day' | 'week' | 'month' | 'ever'

/** The span of a meter that counts calls which are under way. */
export const UNDER_WAY = 'now'
/** The span of a meter that is refilled steadily. */
export const STEADY = 'steady'
/** The span of a budget without an end. */
export const FOR_EVER = 'ever'

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
const WEEK_MS = 7 * DAY_MS
/** A Monday: 1970-01-05. ms since the epoch. */
const FIRST_MONDAY_MS = 4 * DAY_MS

/** The beginning and the end of a window. ms since the epoch; the end is the beginning of the next one. */
export interface BudgetSpan {
  readonly from: number
  readonly until: number
}

/** Returns the window that an instant (ms since the epoch) falls into, by the UTC calendar; null: it has no end. */
export function budgetSpan(window: BudgetWindow, at: number): BudgetSpan | null {
  if (window === 'ever') return null
  if (window === 'month') {
    const [year, month] = [new Date(at).getUTCFullYear(), new Date(at).getUTCMonth()]
    return { from: Date.UTC(year, month), until: Date.UTC(year, month + 1) }
  }
  const [length, first] = LENGTHS[window]
  const from = Math.floor((at - first) / length) * length + first
  return { from, until: from + length }
}

const LENGTHS = {
  hour: [HOUR_MS, 0],
  day: [DAY_MS, 0],
  week: [WEEK_MS, FIRST_MONDAY_MS],
} as const

/** Names the window of an instant in meters and rows: its beginning, RFC 3339. */
export function spanName(window: BudgetWindow, at: number): string {
  const span = budgetSpan(window, at)
  return span === null ? FOR_EVER : timestamp(span.from)
}
