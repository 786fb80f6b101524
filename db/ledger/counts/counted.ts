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

export type StoredCount = readonly [
  level: CountLevel,
  span: string,
  action: string,
  status: string,
  rows: number,
]

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
