import { setImmediate as nextTurn } from 'node:timers/promises'
import { type ExpressionBuilder, type Kysely, type SqlBool, sql } from 'kysely'
import type { JsonObject } from '../json.ts'
import type { Schema } from '../schema.ts'
import { timestamp } from '../statement.ts'
import { exportLine, ofMcpPath, type StoredRow } from './leaf.ts'
import { type Verdict, verify } from './verify.ts'

/**
 * A row as the API shows it (docs/ledger.md#row): names and order of the columns, `detail` as an object, no
 * `leaf`.
 */
export interface AuditRow extends Omit<StoredRow, 'detail' | 'leaf'> {
  /** The same as `status`, in rows of the MCP path. */
  readonly result?: string
  readonly detail: JsonObject
}

export interface RowFilter {
  readonly principal?: string
  readonly action?: string
  readonly status?: string
  readonly request_id?: string
  /** Rows recorded at or after this instant. ms since the epoch. */
  readonly since?: number
  /** Rows recorded before this instant. ms since the epoch. */
  readonly until?: number
  /** By time, then by place in the chain. Default `desc`: newest first. */
  readonly order?: 'asc' | 'desc'
  /** 1 to 1,000. Default 100. */
  readonly limit?: number
  /** `next_cursor` of the page before, in the same order. */
  readonly cursor?: string
}

export interface Page {
  readonly rows: readonly AuditRow[]
  /** Null on the last page. */
  readonly next_cursor: string | null
}

const DEFAULT_LIMIT = 100
const MAX_LIMIT = 1_000
const EXPORT_PAGE = 500

const SHOWN = [
  ...([
    'stream',
    'seq',
    'recorded_at',
    'request_id',
    'principal_id',
    'principal_type',
    'action',
    'status',
  ] as const),
  ...(['tool', 'model', 'provider', 'cert_thumbprint', 'dpop_jkt', 'detail', 'config_digest'] as const),
  ...(['version', 'prev_hash', 'row_hash'] as const),
]

/**
 * Reads one page of the ledger. Throws a RangeError where `cursor` is not one of ours; a limit out of range
 * is brought into it. Does NOT verify the rows.
 */
export async function listRows(db: Kysely<Schema>, filter: RowFilter): Promise<Page> {
  const { order = 'desc' } = filter
  const limit = Math.min(Math.max(Math.trunc(filter.limit ?? DEFAULT_LIMIT), 1), MAX_LIMIT)
  const found = await db
    .selectFrom('audit_log')
    .select(SHOWN)
    .where((row) => row.and(conditions(row, filter)))
    .orderBy('recorded_at', order)
    .orderBy('stream', order)
    .orderBy('seq', order)
    .limit(limit + 1)
    .execute()
  const page = found.slice(0, limit)
  const last = page.at(-1)
  return { rows: page.map(shown), next_cursor: found.length > limit && last ? printCursor(last) : null }
}

/**
 * The whole ledger as NDJSON: one line per row, each with its line feed, streams one after the other by seq.
 * A line holds every column as `exportLine` says; the `leaf` is not exported, because it can be rebuilt from
 * the others.
 */
export async function* exportLines(db: Kysely<Schema>): AsyncGenerator<string> {
  for await (const row of storedRows(db)) yield `${exportLine(row)}\n`
}

/**
 * Verifies the whole ledger as {@link verify} does. Does NOT notice rows that an index was made to leave out:
 * `sallyport verify-audit` does.
 */
export const verifyDatabase = (db: Kysely<Schema>): Promise<Verdict> => verify(storedRows(db))

// Page by page, and a turn of the event loop between: SQLite answers at once, so nobody else would come to
// speak.
async function* storedRows(db: Kysely<Schema>): AsyncGenerator<StoredRow> {
  let after: Pick<StoredRow, 'stream' | 'seq'> = { stream: '', seq: 0 }
  for (;;) {
    const page: StoredRow[] = await db
      .selectFrom('audit_log')
      .select([...SHOWN, 'leaf'])
      .where(sql<SqlBool>`(stream, seq) > (${after.stream}, ${after.seq})`)
      .orderBy('stream')
      .orderBy('seq')
      .limit(EXPORT_PAGE)
      .execute()
    yield* page
    const last = page.at(-1)
    if (!last || page.length < EXPORT_PAGE) return
    after = last
    await nextTurn()
  }
}

function conditions(row: ExpressionBuilder<Schema, 'audit_log'>, filter: RowFilter) {
  const { principal, action, status, request_id: requestId, since, until, order, cursor } = filter
  return [
    ...(principal === undefined ? [] : [row('principal_id', '=', principal)]),
    ...(action === undefined ? [] : [row('action', '=', action)]),
    ...(status === undefined ? [] : [row('status', '=', status)]),
    ...(requestId === undefined ? [] : [row('request_id', '=', requestId)]),
    ...(since === undefined ? [] : [row('recorded_at', '>=', timestamp(since))]),
    ...(until === undefined ? [] : [row('recorded_at', '<', timestamp(until))]),
    ...(cursor === undefined ? [] : [beyond(parseCursor(cursor), order)]),
  ]
}

function beyond({ recorded_at: at, stream, seq }: Cursor, order: RowFilter['order']) {
  const past = sql.raw(order === 'asc' ? '>' : '<')
  return sql<SqlBool>`(recorded_at, stream, seq) ${past} (${at}, ${stream}, ${seq})`
}

function shown({ detail, status, ...row }: Omit<StoredRow, 'leaf'>): AuditRow {
  // Proven by the writer: detail is the canonical text of an object (db/audit/draft.ts).
  const members = JSON.parse(detail) as JsonObject
  return { ...row, status, ...(ofMcpPath(row) ? { result: status } : {}), detail: members }
}

type Cursor = Pick<StoredRow, 'recorded_at' | 'stream' | 'seq'>

const printCursor = ({ recorded_at: at, stream, seq }: Cursor): string =>
  Buffer.from(JSON.stringify([at, stream, seq])).toString('base64url')

function parseCursor(text: string): Cursor {
  const parts: unknown[] = decoded(text)
  const [at, stream, seq] = parts
  if (typeof at !== 'string' || typeof stream !== 'string' || !Number.isSafeInteger(seq)) throw notOurs()
  return { recorded_at: at, stream, seq: Number(seq) }
}

function decoded(text: string): unknown[] {
  try {
    const parts: unknown = JSON.parse(Buffer.from(text, 'base64url').toString())
    if (Array.isArray(parts)) return parts
  } catch (error) {
    throw notOurs(error)
  }
  throw notOurs()
}

const notOurs = (cause?: unknown): RangeError => new RangeError('cursor is not one of this ledger', { cause })
