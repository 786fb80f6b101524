import type { LedgerStatement } from '../../support/statement.ts'
import type { SpendAnswer, SpendCount, SpendQuestion } from './spend-counts.ts'

/**
 * Rows of one action and status in one span. `span`: the first characters of their instants, such as
 * `2026-11-25T13` of an hour.
 */
export interface SpanCount {
  readonly span: string
  readonly action: string
  readonly status: string
  readonly rows: number
}

/** The levels that counts are kept at: of a day, an hour, ten minutes, a minute. Characters of an instant. */
export const COUNT_LEVELS = [10, 13, 15, 16] as const
export type CountLevel = (typeof COUNT_LEVELS)[number]
export const MINUTE_LEVEL: CountLevel = 16
/** The level that stays when the rows are archived. */
export const DAY_LEVEL: CountLevel = 10

type StoredCount = readonly [level: CountLevel, span: string, action: string, status: string, rows: number]

export function rollUpCounts(minutes: readonly SpanCount[]): readonly StoredCount[] {
  const kept = new Map<string, StoredCount>()
  for (const { span, action, status, rows } of minutes) {
    for (const level of COUNT_LEVELS) {
      const wider = span.slice(0, level)
      const key = JSON.stringify([wider, action, status])
      kept.set(key, [level, wider, action, status, (kept.get(key)?.[4] ?? 0) + rows])
    }
  }
  return [...kept.values()]
}

/** A portion of the ledger's rows, counted up to a place. */
export interface MinuteCounts {
  readonly counts: readonly SpanCount[]
  readonly spends: readonly SpendCount[]
  readonly place: number
}

export interface CountedWindow {
  readonly level: CountLevel
  readonly since: string
  readonly until: string
}

export interface WindowCounts {
  /** One for each span of the level, unordered. A span may come twice: stored, and counted just now. */
  readonly counts: readonly SpanCount[]
  /** About how many rows of any time are too many to count for a question. */
  readonly uncounted: number
}

/**
 * Counts of the ledger's rows (docs/ledger.md#counts). Stored counts are exact up to a place; later rows are
 * counted when asked for. Both can be made again from the ledger.
 */
export interface RowCounts {
  readonly counted: () => Promise<number>
  /** Counts the rows after a place, at most `most`, as far as no row can come in between any more. */
  readonly portion: (after: number, most: number) => Promise<MinuteCounts>
  /**
   * Adds a portion to the counts and the spends up to `from`, all or none: if another process has done so, the first
   * statement changes no row.
   */
  readonly keep: (from: number, portion: MinuteCounts) => readonly LedgerStatement[]
  /** Counts a window, of one instant. Rejects with a LedgerError `busy` if too many ask at once. */
  readonly within: (window: CountedWindow, signal: AbortSignal) => Promise<WindowCounts>
  /** Groups the spends of a window of days. Rejects with a LedgerError `busy` if too many ask at once. */
  readonly spends: (question: SpendQuestion, signal: AbortSignal) => Promise<SpendAnswer>
  /** Deletes some of the spends of days before one, such as 2026-11-25; null if there are none. */
  readonly removeSpends: (before: string) => Promise<readonly LedgerStatement[] | null>
  /** The place of the last row; 0 if there is none. */
  readonly last: () => Promise<number>
}
