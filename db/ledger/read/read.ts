import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Kysely } from 'kysely'
import type { DatabaseSchema } from '../../schema.ts'
import { type LedgerCursor, printLedgerCursor } from '../../support/cursor.ts'
import { isObject, type JsonObject, type UnknownRecord } from '../../support/json.ts'
import {
  exportLine,
  isMcpPathRow,
  type ReadableNames,
  SHOWN_COLUMNS,
  type StoredRow,
} from '../record/leaf.ts'
import { chainStartOf, keptRows } from '../verify/kept.ts'
import { chainVerifier, type DamagedRow, type LedgerVerdict } from '../verify/verify.ts'
import { ArchivedPage, type ArchivePart } from './archived-page.ts'
import { archivedRows } from './archived-rows.ts'
import { type MatchingRow, matchingRows, ROWS_PER_READ, type RowFilter } from './find.ts'
import { userNameFinder } from './names.ts'
import { readableSegments, segmentsFor } from './segments-for.ts'

/**
 * A row as the API shows it (docs/ledger.md#row): the columns by name, `detail` as an object, no `leaf`.
 */
export interface AuditRow extends Omit<StoredRow, 'detail' | 'leaf'> {
  /** The same as `status`, in rows of the MCP path. */
  readonly result?: string
  /** The readable id of a user, alongside its pseudonym in `principal_id`, while it exists. */
  readonly principal_name?: string | undefined
  /** The same of `detail.subject`. */
  readonly subject_name?: string | undefined
  readonly detail: JsonObject
}

export interface LedgerPage {
  readonly rows: readonly AuditRow[]
  /** Null on the last page. */
  readonly next_cursor: string | null
  /** Absent: the question needs no segment, or the page ended before them. */
  readonly archived?: ArchivePart
}

const DEFAULT_LIMIT = 100
const MAX_LIMIT = 1_000
const NEVER = new AbortController().signal

export async function listRows(db: Kysely<DatabaseSchema>, filter: RowFilter): Promise<LedgerPage> {
  let text = ''
  for await (const next of pageTexts(db, filter)) text += next
  // Proven by pageTexts.
  return JSON.parse(text) as LedgerPage
}

/** The place and the hash of the row that was recorded last; undefined if there is none. */
export const newestRow = (db: Kysely<DatabaseSchema>) =>
  db
    .selectFrom('audit_log')
    .select(['stream', 'seq', 'recorded_at', 'row_hash'])
    .orderBy('recorded_at', 'desc')
    .orderBy('stream', 'desc')
    .orderBy('seq', 'desc')
    .limit(1)
    .executeTakeFirst()

/**
 * One page as the text of a {@link LedgerPage}, in short indexed questions with a turn of the loop between
 * two. Throws a RangeError for a cursor of others, an AbortError when the signal fires; a limit is brought
 * into range. Does NOT verify the rows.
 */
export async function* pageTexts(
  db: Kysely<DatabaseSchema>,
  filter: RowFilter,
  signal: AbortSignal = NEVER,
  folder: string | null = null,
): AsyncGenerator<string> {
  const limit = Math.min(Math.max(Math.trunc(filter.limit ?? DEFAULT_LIMIT), 1), MAX_LIMIT)
  const archive = new ArchivedPage(await segmentsFor(db, filter), folder, filter, limit + 1)
  let shown = 0
  let last: MatchingRow | null = null
  const names = userNameFinder(db)
  yield '{"rows":['
  // One more than asked for, to know whether there is a next page.
  for await (const row of archive.rows(matchingRows(db, filter, limit + 1, signal), signal)) {
    if (shown === limit && last) return yield pageEnd(last, archive.readPart())
    const text = rowText(row, await names({ ...row, detail: row.leaf }))
    yield shown === 0 ? text : `,${text}`
    shown += 1
    last = row
  }
  yield pageEnd(archive.cut, archive.part())
}

const pageEnd = (cursor: LedgerCursor | null, archived: ArchivePart | undefined): string =>
  `],${JSON.stringify({ next_cursor: cursor && printLedgerCursor(cursor), archived }).slice(1)}`

/**
 * Reads the ledger page by page in the order written, whole or after a place. Throws an AbortError when the
 * signal fires.
 */
export type ReadLedgerPages = (
  db: Kysely<DatabaseSchema>,
  signal: AbortSignal,
  after?: number,
) => AsyncGenerator<readonly (StoredRow | DamagedRow)[]>

interface LedgerReadOptions {
  readonly signal?: AbortSignal
  readonly pages?: ReadLedgerPages
  /** Default: from the first row. */
  readonly after?: number
}

/**
 * The whole ledger as NDJSON, a line as `exportLine` says, with what is archived in a folder. Throws an
 * AbortError when the signal fires, an Error if a row cannot be reached.
 */
export async function* exportedLines(
  db: Kysely<DatabaseSchema>,
  reading: LedgerReadOptions = {},
  folder: string | null = null,
): AsyncGenerator<string> {
  const names = userNameFinder(db)
  for await (const row of rowsToExport(db, reading, folder)) {
    if ('damaged' in row) throw new Error(`a row of ${String(row.stream)} ${row.damaged}`)
    yield `${exportLine(row, await names(row))}\n`
  }
}

async function* rowsToExport(
  db: Kysely<DatabaseSchema>,
  reading: LedgerReadOptions,
  folder: string | null,
): AsyncGenerator<StoredRow | DamagedRow> {
  const { signal = NEVER } = reading
  const segments = await readableSegments(db, folder ?? '')
  yield* archivedRows(segments, folder ?? '', signal)
  const after = segments.at(-1)?.last_place
  yield* ledgerRows(db, { ...reading, ...(after !== undefined && { after }) })
}

/** Verifies as `verify` does. Does NOT notice rows that an index was made to leave out. */
export async function verifyDatabase(
  db: Kysely<DatabaseSchema>,
  reading: LedgerReadOptions = {},
): Promise<LedgerVerdict> {
  let verdict: LedgerVerdict | null = null
  for await (const next of verifyWithProgress(db, reading)) if (typeof next !== 'number') verdict = next
  if (!verdict) throw new Error('verifying ended without a verdict')
  return verdict
}

const PROGRESS_INTERVAL_ROWS = 20_000

/** The same, step by step: how many rows were read so far, again and again, and last the verdict. */
export async function* verifyWithProgress(
  db: Kysely<DatabaseSchema>,
  reading: LedgerReadOptions = {},
): AsyncGenerator<number | LedgerVerdict> {
  const kept = await keptRows(db)
  const { isTail: tail, before } = chainStartOf(kept)
  const chains = chainVerifier({ tail, streams: before?.state.streams })
  let rows = 0
  for await (const row of ledgerRows(db, { ...reading, ...(kept && { after: kept.after }) })) {
    if (!chains.add(row)) break
    rows += 1
    if (rows % PROGRESS_INTERVAL_ROWS === 0) yield rows
  }
  yield chains.verdict()
}

export async function* ledgerRows(
  db: Kysely<DatabaseSchema>,
  { signal = NEVER, pages = pagesByStream, after }: LedgerReadOptions = {},
): AsyncGenerator<StoredRow | DamagedRow> {
  for await (const page of pages(db, signal, after)) yield* page
}

async function* streamsOf(db: Kysely<DatabaseSchema>): AsyncGenerator<string> {
  let after = ''
  for (;;) {
    const next = await db
      .selectFrom('audit_log')
      .select('stream')
      .where('stream', '>', after)
      .orderBy('stream')
      .limit(1)
      .executeTakeFirst()
    if (!next) return
    yield next.stream
    after = next.stream
  }
}

// Short reads: a long one would keep SQLite's write-ahead log from being moved, and PostgreSQL from
// forgetting. Each stream up to where it was when reached, since it may grow faster than a caller reads.
const pagesByStream: ReadLedgerPages = async function* (db, signal, after) {
  for await (const stream of streamsOf(db)) yield* pagesOf(db, stream, signal, after)
}

async function* pagesOf(
  db: Kysely<DatabaseSchema>,
  stream: string,
  signal: AbortSignal,
  from: number | undefined,
): AsyncGenerator<readonly StoredRow[]> {
  const rows = db.selectFrom('audit_log').where('stream', '=', stream)
  const head = await rows.select('seq').orderBy('seq', 'desc').limit(1).executeTakeFirst()
  if (!head) return
  let page: readonly StoredRow[] = []
  do {
    const after = page.at(-1)?.seq ?? from
    let query = rows.select([...SHOWN_COLUMNS, 'leaf']).where('seq', '<=', head.seq)
    // The first page from the very beginning, wherever somebody has put a row.
    if (after !== undefined) query = query.where('seq', '>', after)
    page = await query.orderBy('seq').limit(ROWS_PER_READ).execute()
    yield page
    await nextTurn(undefined, { signal })
  } while (page.length === ROWS_PER_READ)
}

/** Shows rows that were found as a page does. */
export async function auditRowsOf(
  db: Kysely<DatabaseSchema>,
  rows: readonly MatchingRow[],
): Promise<readonly AuditRow[]> {
  const names = userNameFinder(db)
  const shown: AuditRow[] = []
  // Proven by rowText.
  for (const row of rows)
    shown.push(JSON.parse(rowText(row, await names({ ...row, detail: row.leaf }))) as AuditRow)
  return shown
}

function rowText({ leaf, ...stored }: MatchingRow, names: ReadableNames): string {
  const result = isMcpPathRow(stored) ? { result: stored.status } : {}
  // Proven by the writer: the leaf's values have the names and types of columns (db/ledger/record/draft.ts).
  // Stored columns first: so the place of a row is said first.
  const shown = {
    ...stored,
    ...membersOf(leaf),
    ...stored,
    ...names,
    ...result,
    v: undefined,
    index: undefined,
  } as unknown as AuditRow
  return JSON.stringify(shown)
}

/** The members of a leaf. One that is no JSON has none, and must not keep the other rows from being read. */
function membersOf(leaf: string): UnknownRecord {
  try {
    const members: unknown = JSON.parse(leaf)
    return isObject(members) ? members : UNREADABLE
  } catch (error) {
    if (error instanceof SyntaxError) return UNREADABLE
    throw error
  }
}

const UNREADABLE: UnknownRecord = Object.fromEntries(SHOWN_COLUMNS.map((name) => [name, null]))
