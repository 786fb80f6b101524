import type { Database } from '../../../db/database.ts'
import { rollUpCounts, type SpanCount } from '../../../db/ledger/counts/row-counts.ts'
import type { AuditRow } from '../../../db/ledger/read/read.ts'

/** Counts of every level as rows of the table, in one order. */
type Row = readonly [level: number, span: string, action: string, status: string, rows: number]

const inOrder = (rows: readonly Row[]): readonly Row[] =>
  rows.toSorted((one, other) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1))

/** The counts that are kept. */
export async function keptCounts({ kysely }: Pick<Database, 'kysely'>): Promise<readonly Row[]> {
  const rows = await kysely.selectFrom('row_counts').selectAll().execute()
  return inOrder(
    rows.map(({ level, span, action, status, row_count: count }) => [level, span, action, status, count]),
  )
}

/** The counts that rows of the ledger come to, one by one. */
export function countsOfRows(rows: readonly Pick<AuditRow, 'recorded_at' | 'action' | 'status'>[]) {
  const minutes = rows.map(
    ({ recorded_at: at, action, status }): SpanCount => ({ span: at.slice(0, 16), action, status, rows: 1 }),
  )
  return inOrder(rollUpCounts(minutes))
}

/** Sums of a window by action and status. */
export function sums(counts: readonly SpanCount[]): Readonly<Record<string, number>> {
  const all: Record<string, number> = {}
  for (const { action, status, rows } of counts)
    all[`${action} ${status}`] = (all[`${action} ${status}`] ?? 0) + rows
  return all
}
