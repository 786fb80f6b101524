import { setImmediate as nextTurn } from 'node:timers/promises'
import { type ExpressionBuilder, type Kysely, type SqlBool, sql } from 'kysely'
import type { DatabaseSchema } from '../../schema.ts'
import { type LedgerCursor, parseLedgerCursor } from '../../support/cursor.ts'
import { isObject, type UnknownRecord } from '../../support/json.ts'
import { timestamp } from '../../support/statement.ts'
import { FREQUENT_ACTIONS } from '../record/frequent.ts'
import type { StoredRow } from '../record/leaf.ts'

export interface RowFilter {
  readonly principal?: string
  readonly action?: string
  readonly status?: string
  readonly request_id?: string
  /** Rows recorded at or after this instant. ms since the epoch. */
  readonly since?: number
  /** Rows recorded before this instant. ms since the epoch. */
  readonly until?: number
  /** Sorted by time, then by place in the chain. Default `desc`: newest first. */
  readonly order?: 'asc' | 'desc'
  /** 1 to 1,000. Default 100. */
  readonly limit?: number
  /** `next_cursor` of the page before, in the same order. */
  readonly cursor?: string
  /** `no`: the rows of the database alone. */
  readonly archive?: 'no'
}

/** The folder of the archive in the configuration in force; null: there is none. */
export interface ArchiveFolder {
  path: string | null
}

/** The rows that are read at once. A row may have 64 KiB of detail, and a leaf that repeats it. */
export const ROWS_PER_READ = 128
const SPAN = 1_024

/** The columns read of a found row. The leaf says the rest: an engine would read it once for each member. */
const READ = [
  ...(['stream', 'seq', 'recorded_at', 'request_id', 'principal_id', 'action', 'status'] as const),
  ...(['row_hash', 'leaf'] as const),
]

export type MatchingRow = Pick<StoredRow, (typeof READ)[number]>

/** Reads the details of an action, and when each was recorded. However many they are, others get their turn. */
export async function* detailsOf(
  db: Kysely<DatabaseSchema>,
  filter: RowFilter,
): AsyncGenerator<{ readonly at: string; readonly detail: UnknownRecord }> {
  const { signal } = new AbortController()
  for await (const { recorded_at: at, leaf } of matchingRows(db, filter, Number.POSITIVE_INFINITY, signal)) {
    const row: unknown = JSON.parse(leaf)
    if (isObject(row) && isObject(row.detail)) yield { at, detail: row.detail }
  }
}

/**
 * Finds at most `most` rows that fit, in order. Goes by spans of time: only an index tells where one of so
 * many rows ends. Throws a RangeError for a cursor of others, an AbortError when the signal fires.
 */
export async function* matchingRows(
  db: Kysely<DatabaseSchema>,
  filter: RowFilter,
  most: number,
  signal: AbortSignal,
): AsyncGenerator<MatchingRow> {
  let from: FilterPlace | null = startOf(filter)
  let wanted = most
  for (;;) {
    const edge: string | null = await spanEnd(db, filter, from)
    let rows: readonly MatchingRow[]
    do {
      rows = await rowsQuery(db, filter, { from, edge }, Math.min(ROWS_PER_READ, wanted)).execute()
      yield* rows
      from = rows.at(-1) ?? from
      wanted -= rows.length
      if (wanted === 0) return
      await nextTurn(undefined, { signal })
    } while (rows.length === ROWS_PER_READ)
    if (edge === null) return
    from = { recorded_at: edge }
  }
}

/** A place in the order of a filter: after a row, or after all rows of an instant. */
type FilterPlace = LedgerCursor | { readonly recorded_at: string }

/** Compares two rows by time, then by place in the chain, as the database does: negative if the first is older. */
export function compareRows(one: LedgerCursor, other: LedgerCursor): number {
  if (one.recorded_at !== other.recorded_at) return one.recorded_at < other.recorded_at ? -1 : 1
  if (one.stream !== other.stream) return one.stream < other.stream ? -1 : 1
  return one.seq - other.seq
}

interface FilterSpan {
  /** Null: from the filter's own beginning. */
  readonly from: FilterPlace | null
  /** The instant that it ends with, all rows of that included. Null: to the filter's own end. */
  readonly edge: string | null
}

// A cursor before the filter's beginning, which another filter has given, says nothing.
function startOf({ cursor, order, since, until }: RowFilter): LedgerCursor | null {
  if (cursor === undefined) return null
  const place = parseLedgerCursor(cursor)
  const outside =
    order === 'asc'
      ? since !== undefined && place.recorded_at < timestamp(since)
      : until !== undefined && place.recorded_at >= timestamp(until)
  return outside ? null : place
}

async function spanEnd(
  db: Kysely<DatabaseSchema>,
  filter: RowFilter,
  from: FilterPlace | null,
): Promise<string | null> {
  // The rows of one request are few, and its index is not by time.
  if (filter.request_id !== undefined) return null
  const edge = await spanEndQuery(db, filter, from).executeTakeFirst()
  return edge?.recorded_at ?? null
}

/** Reads an index alone. Exported for the test of its query plan. */
export const spanEndQuery = (db: Kysely<DatabaseSchema>, filter: RowFilter, from: FilterPlace | null) =>
  db
    .selectFrom('audit_log')
    .select('recorded_at')
    .where((row) => row.and([...byIndex(row, filter), ...timeBounds(row, filter, { from, edge: null })]))
    .orderBy('recorded_at', filter.order ?? 'desc')
    .offset(SPAN - 1)
    .limit(1)

/** Reads by the index that {@link spanEndQuery} reads. Exported for the test of its query plan. */
export const rowsQuery = (db: Kysely<DatabaseSchema>, filter: RowFilter, span: FilterSpan, limit: number) =>
  db
    .selectFrom('audit_log')
    .select(READ)
    .where((row) =>
      row.and([
        ...byIndex(row, filter),
        ...timeBounds(row, filter, span),
        ...cursorBound(filter, span),
        ...byRow(filter),
      ]),
    )
    .orderBy('recorded_at', filter.order ?? 'desc')
    .orderBy('stream', filter.order ?? 'desc')
    .orderBy('seq', filter.order ?? 'desc')
    .limit(limit)

type AuditLogExpression = ExpressionBuilder<DatabaseSchema, 'audit_log'>

// The index's own text: SQLite uses a partial index only if the query repeats its condition.
export const RARE_ACTION = sql<SqlBool>`action not in (${sql.join(FREQUENT_ACTIONS.map((action) => sql.lit(action)))})`

const isRare = (action: string | undefined): action is string =>
  action !== undefined && !FREQUENT_ACTIONS.includes(action)

// The same of refusals, which are few among the rows of busy callers.
const DENIED = sql<SqlBool>`status = 'denied'`

const isByStatus = ({ request_id: requestId, principal, action, status }: RowFilter): boolean =>
  status === 'denied' && requestId === undefined && principal === undefined && !isRare(action)

function byIndex(row: AuditLogExpression, filter: RowFilter) {
  const { request_id: requestId, principal, action } = filter
  if (requestId !== undefined) return [row('request_id', '=', requestId)]
  if (principal !== undefined) return [row('principal_id', '=', principal)]
  if (isByStatus(filter)) return [DENIED]
  return isRare(action) ? [row('action', '=', action), RARE_ACTION] : []
}

/** The other columns, written so that no engine takes an index of theirs, in which a span has no bound. */
function byRow(filter: RowFilter) {
  const { request_id: requestId, principal, action, status } = filter
  const byPrincipal = requestId === undefined
  const byAction = byPrincipal && principal === undefined && isRare(action)
  return [
    ...(byPrincipal || principal === undefined ? [] : [sql<SqlBool>`principal_id || '' = ${principal}`]),
    ...(byAction || action === undefined ? [] : [sql<SqlBool>`action || '' = ${action}`]),
    ...(status === undefined || isByStatus(filter) ? [] : [sql<SqlBool>`status || '' = ${status}`]),
  ]
}

function timeBounds(row: AuditLogExpression, { since, until, order }: RowFilter, { from, edge }: FilterSpan) {
  const at = (operator: '<' | '<=' | '>' | '>=', text: string) => [row('recorded_at', operator, text)]
  const notBefore = since === undefined ? [] : at('>=', timestamp(since))
  const before = until === undefined ? [] : at('<', timestamp(until))
  const orEqual = from !== null && 'seq' in from ? '=' : ''
  if (order === 'asc')
    return [
      ...(from === null ? notBefore : at(`>${orEqual}`, from.recorded_at)),
      ...(edge === null ? before : at('<=', edge)),
    ]
  return [
    ...(from === null ? before : at(`<${orEqual}`, from.recorded_at)),
    ...(edge === null ? notBefore : at('>=', edge)),
  ]
}

function cursorBound({ order }: RowFilter, { from }: FilterSpan) {
  if (from === null || !('seq' in from)) return []
  const past = sql.raw(order === 'asc' ? '>' : '<')
  return [sql<SqlBool>`(recorded_at, stream, seq) ${past} (${from.recorded_at}, ${from.stream}, ${from.seq})`]
}
