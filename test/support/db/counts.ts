import type { Database } from '../../../db/database.ts'
import { rollUpCounts, type SpanCount } from '../../../db/ledger/counts/row-counts.ts'
import { SPEND_DIMENSIONS, SPEND_SUMS, type SpendCount } from '../../../db/ledger/counts/spend-counts.ts'
import type { AuditRow } from '../../../db/ledger/read/read.ts'
import type { LedgerEntry } from '../../../db/ledger/record/entry.ts'
import type { StoredRow } from '../../../db/ledger/record/leaf.ts'
import type { JsonObject } from '../../../db/support/json.ts'
import { entry } from './scratch-ledger.ts'

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

export interface SpentCall {
  readonly id: string
  /** When it was decided, and when it had ended. ms since the epoch. */
  readonly at: number
  readonly endedAt?: number
  readonly cost?: JsonObject
  readonly tokens?: JsonObject
  readonly names?: Partial<LedgerEntry>
}

/** The decision and the outcome of a call that costs something. */
export const spentEntries = ({ id, at, endedAt = at, cost, tokens, names }: SpentCall) =>
  [
    entry({ ...names, at, request_id: id }),
    entry({
      ...{ provider: 'openai', ...names, at: endedAt, request_id: id, status: 'success' },
      detail: { ...(cost && { cost }), ...(tokens && { tokens }) },
    }),
  ] as const

const byKey = (spends: readonly SpendCount[]): readonly (readonly (string | number)[])[] =>
  spends
    .map((one) => [...SPEND_DIMENSIONS.map((name) => one[name]), ...SPEND_SUMS.map((name) => one[name])])
    .toSorted((one, other) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1))

/** The spends that are kept, in one order. */
export async function keptSpends({ kysely }: Pick<Database, 'kysely'>) {
  return byKey(await kysely.selectFrom('spend_counts').selectAll().execute())
}

interface StatedCost {
  readonly microusd?: number
  readonly priced: string
}

/** The spends that rows come to, counted in another way than the product does: call by call, in BigInt. */
export function spendsOfRows(rows: readonly StoredRow[]) {
  const decidedAt = new Map(
    rows.flatMap(({ status, request_id: id, recorded_at: at }) =>
      status === 'allowed' ? [[id, at] as const] : [],
    ),
  )
  const sums = new Map<string, { key: string[]; all: bigint[] }>()
  for (const row of rows) {
    const { cost, tokens = {} }: { cost?: StatedCost; tokens?: Record<string, number> } = JSON.parse(
      row.detail,
    )
    if (!cost) continue
    const { priced, microusd = 0 } = cost
    const day = (decidedAt.get(row.request_id) ?? row.recorded_at).slice(0, 10)
    const key = [day, row.principal_id ?? '', row.provider ?? '', row.model ?? '', row.tool ?? '']
    const isEstimate = !['stated', 'free', 'unpriced'].includes(priced)
    const own = [
      ...[1, tokens.input, tokens.output, tokens.cache_read, tokens.cache_write, microusd],
      ...[isEstimate ? 1 : 0, isEstimate ? microusd : 0, priced === 'unpriced' ? 1 : 0],
    ].map((count) => BigInt(count ?? 0))
    const known = sums.get(key.join('\n'))
    sums.set(key.join('\n'), { key, all: own.map((count, n) => count + (known?.all[n] ?? 0n)) })
  }
  return [...sums.values()]
    .map(({ key, all }) => [...key, ...all.map(Number)])
    .toSorted((one, other) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1))
}
