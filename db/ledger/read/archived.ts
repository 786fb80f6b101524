import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { type Kysely, sql } from 'kysely'
import type { DatabaseSchema } from '../../schema.ts'
import { type LedgerCursor, parseLedgerCursor } from '../../support/cursor.ts'
import { timestamp } from '../../support/statement.ts'
import { type TaskRequester, ThreadPool } from '../../support/thread.ts'
import { LedgerError } from '../record/entry.ts'
import { SHOWN_COLUMNS, type StoredRow } from '../record/leaf.ts'
import { HASH_BYTES } from '../tree/hashes.ts'
import { MAX_ROWS_PER_REQUEST, UnreadableSegment, unreadableSegment } from '../tree/rows.ts'
import { archivedSentence, listSegments, type StoredSegment, segmentsIn } from '../tree/segments.ts'
import { type ReadTile, TILE_WIDTH, tilePath } from '../tree/tiles.ts'
import { intactRows } from '../verify/export.ts'
import { compareRows, type MatchingRow, type RowFilter } from './find.ts'
import type { SegmentFile } from './segment-file.ts'
import type { ArchivedRow, SegmentIndex, SegmentReaderTasks, SegmentSearch } from './segment-thread.ts'

type ArchivedDatabase = Kysely<DatabaseSchema>

/** The time that the thread is kept without a question: it knows the digests of the files that it has read. ms. */
const IDLE_MS = 60_000
/** The questions of one caller that wait for the one before. */
const MAX_WAITING = 4

const threads = new ThreadPool<SegmentReaderTasks>(import.meta, './segment-thread', {
  name: 'the reader of the archive',
  maxTasksPerThread: Number.POSITIVE_INFINITY,
  idleMs: IDLE_MS,
  maxWaiting: MAX_WAITING,
  overloaded: () => tooManySearches(),
  refusal: unreadableSegment,
})

/** The longest time between the rows of one request that are looked for. ms. */
const MAX_REQUEST_MS = 86_400_000
/** The most that a clock is set back between two of them. ms. */
const MAX_STEP_MS = 3_600_000
/** The last instant that has four digits of a year. ms since the epoch. */
const MAX_INSTANT = 253_402_300_799_999

/** The rows of a request lie near the instant that its id begins with (proxy/http/arrival.ts). */
function windowOf(filter: RowFilter): readonly [since: string, until: string] {
  const { request_id: id, since = 0, until = MAX_INSTANT } = filter
  const [, hex] = /^req_([0-9a-f]{12})/.exec(id ?? '') ?? []
  const at = hex === undefined ? null : Math.min(Number.parseInt(hex, 16), MAX_INSTANT - MAX_REQUEST_MS)
  const from = timestamp(at === null ? since : Math.max(since, at - MAX_STEP_MS))
  const to = timestamp(at === null ? until : Math.min(until, at + MAX_REQUEST_MS))
  const edge = edgeOfCursor(filter)
  return filter.order === 'asc'
    ? [edge && edge > from ? edge : from, to]
    : [from, edge && edge < to ? edge : to]
}

const edgeOfCursor = ({ cursor }: RowFilter): string | null =>
  cursor === undefined ? null : parseLedgerCursor(cursor).recorded_at

/** The segments that may hold rows which fit, by their times and their indexes, oldest first. */
export async function segmentsFor(
  db: ArchivedDatabase,
  filter: RowFilter,
): Promise<readonly StoredSegment[]> {
  if (filter.archive === 'no') return []
  const [since, until] = windowOf(filter)
  const lists = (column: 'principals' | 'actions', value: string | undefined) =>
    value === undefined
      ? sql<boolean>`1 = 1`
      : sql<boolean>`(${sql.ref(column)} is null or replace(${sql.ref(column)}, ${JSON.stringify(value)}, '') <> ${sql.ref(column)})`
  return segmentsIn(db)
    .where('until', '>=', since)
    .where('since', '<=', until)
    .where(lists('principals', filter.principal))
    .where(lists('actions', filter.action))
    .orderBy('first')
    .execute()
}

/** The last segments that lie in a folder without a gap, each as long as it was, oldest first. */
export async function readableSegments(
  db: ArchivedDatabase,
  folder: string,
): Promise<readonly StoredSegment[]> {
  const found: StoredSegment[] = []
  if (folder === '') return found
  for (const segment of (await listSegments(db)).toReversed()) {
    const file = await stat(join(folder, segment.file)).catch(() => null)
    if (file?.size !== segment.bytes) break
    found.unshift(segment)
  }
  return found
}

/** The leaf of the first row of some segments that was recorded at or after an instant; null if none was. */
export async function archivedSince(
  folder: string,
  segments: readonly StoredSegment[],
  instant: string,
  signal: AbortSignal,
): Promise<number | null> {
  const segment = segments.find(({ until }) => until >= instant)
  if (!segment) return null
  const filter: RowFilter = { since: Date.parse(instant), order: 'asc' }
  const where = { ...fileIn(folder, segment), first: segment.first }
  try {
    for await (const { index } of foundRows({ segment: where, filter, most: 1 }, { signal })) return index
    return null
  } catch (error) {
    throw naming(segment, error)
  }
}

/** The rows that a search finds. `onEnd` is told whether there are more. */
async function* foundRows(
  search: SegmentSearch,
  requester: TaskRequester,
  onEnd: (goesOn: boolean) => void = () => {},
): AsyncGenerator<ArchivedRow> {
  const pieces = threads.stream('find', search, requester)
  try {
    let next = await pieces.next()
    for (; !next.done; next = await pieces.next()) yield* next.value
    onEnd(next.value)
  } finally {
    await pieces.return(false)
  }
}

const fileIn = (folder: string, { file, sha256 }: StoredSegment): SegmentFile => ({ folder, file, sha256 })

/** The members by which questions find a segment later. */
export const indexOfSegment = (segment: SegmentFile, signal: AbortSignal): Promise<SegmentIndex> =>
  threads.ask('index', segment, { signal })

/** A whole member of a segment. Rejects with {@link UnreadableSegment}. */
export async function archivedMember(folder: string, segment: StoredSegment, name: string): Promise<Buffer> {
  try {
    return Buffer.from(await threads.ask('member', { segment: fileIn(folder, segment), name }))
  } catch (error) {
    throw naming(segment, error)
  }
}

const naming = (segment: StoredSegment, error: unknown): unknown =>
  error instanceof UnreadableSegment ? new UnreadableSegment(archivedSentence(segment, error.message)) : error

/** The rows of some segments in the order of the tree, but for the leaves from one on. */
export async function* archivedRows(...of: Parameters<typeof archivedLeaves>): AsyncGenerator<StoredRow> {
  for await (const row of archivedLeaves(...of)) {
    const columns = Object.fromEntries(SHOWN_COLUMNS.map((name) => [name, row[name]]))
    // Proven by the list of columns.
    yield { ...columns, leaf: row.leaf } as StoredRow
  }
}

/** The same, whose columns are read when they are asked for: a copy by spreading lacks them. */
export async function* archivedLeaves(
  segments: readonly StoredSegment[],
  folder: string,
  signal: AbortSignal,
  end = Number.POSITIVE_INFINITY,
): AsyncGenerator<StoredRow> {
  for (const segment of segments) {
    let leaf = segment.first
    if (leaf >= end) return
    const blocks = threads.stream('rows', fileIn(folder, segment), { signal })
    try {
      for await (const { buffer, byteOffset, length } of blocks)
        for (const row of intactRows(Buffer.from(buffer, byteOffset, length))) {
          if (leaf >= end) return
          yield row
          leaf += 1
        }
    } catch (error) {
      throw naming(segment, error)
    }
  }
}

interface ArchivedRequest {
  readonly id: string
  /** The principal whose rows alone may be seen; null: all. */
  readonly principal: string | null
  readonly signal: AbortSignal
}

/** The searches for requests that are under way at once: each holds a file open. */
const MAX_REQUEST_SEARCHES = 32
let requestSearches = 0

/**
 * Finds the rows of a request that are archived, in their order, at most 16. Rejects with a {@link LedgerError}
 * `busy` if the principal, or all, have too many searches under way.
 */
export async function archivedRequest(
  db: ArchivedDatabase,
  folder: string | null,
  { id, principal, signal }: ArchivedRequest,
): Promise<{ readonly rows: readonly ArchivedRow[]; readonly unreadable: readonly string[] }> {
  const filter: RowFilter = { request_id: id, order: 'asc', ...(principal !== null && { principal }) }
  const segments = await segmentsFor(db, filter)
  if (requestSearches >= MAX_REQUEST_SEARCHES) throw tooManySearches()
  const page = new ArchivedPage(segments, folder, filter, MAX_ROWS_PER_REQUEST)
  const rows: ArchivedRow[] = []
  requestSearches += 1
  try {
    for await (const row of page.rows(noRows(), signal)) rows.push(row)
  } finally {
    requestSearches -= 1
  }
  return { rows, unreadable: page.part()?.unreadable ?? [] }
}

async function* noRows(): AsyncGenerator<never> {}

const tooManySearches = (): LedgerError =>
  new LedgerError('busy', 'the archive is searched for as many requests as may be')

/** Reads tiles of leaves that are archived from their segments, and others as `read` does. */
export const archivedTiles =
  (segments: readonly StoredSegment[], folder: string, read: ReadTile): ReadTile =>
  async (place, width) => {
    const leaf = place.n * TILE_WIDTH
    const segment =
      place.level === 0 ? segments.find(({ first, last }) => first <= leaf && leaf <= last) : undefined
    if (!segment) return read(place, width)
    const hashes = await archivedMember(folder, segment, `tiles/${tilePath(place, TILE_WIDTH)}`)
    return hashes.subarray(0, (width || TILE_WIDTH) * HASH_BYTES)
  }

/** A place at which a page ends because the segment after it is not looked through: with what is left. */
export interface ArchiveRest {
  readonly segments: number
  readonly rows: number
  /** The file that comes next. */
  readonly file: string
}

/** The part that the archive has in a page. */
export interface ArchivePart {
  /** The files that were looked through. */
  readonly read: readonly string[]
  /** The segments that the next page goes on into. */
  readonly more: ArchiveRest | null
  /** The places of rows that cannot be read here, each as a sentence. */
  readonly unreadable: readonly string[]
}

/** The archived rows that one page looks through, if the first segment does not hold more. */
const MAX_ROWS_PER_PAGE = 250_000
/** The sentences of segments that cannot be read. */
const MAX_SENTENCES = 10
/** After every row of an instant. */
const LAST_STREAM = '\u{10ffff}'

interface RowSource<Row> {
  readonly rest: AsyncGenerator<Row>
  /** The next row; null: there is none. */
  row: Row | null
  /** True: the rows after the last one are not among them. */
  goesOn: boolean
}

/**
 * Merges the rows of a page that stand in the database with those of segments, in the order of the filter. A
 * page goes on into the archive only if it begins there.
 */
export class ArchivedPage {
  readonly #read: string[] = []
  readonly #unread: (readonly [segment: StoredSegment, why: string])[] = []
  readonly #filter: RowFilter
  readonly #most: number
  readonly #folder: string | null
  /** The segments that come next, the first one first. */
  readonly #waiting: StoredSegment[]
  readonly #sign: 1 | -1
  /** The instant of the cursor. */
  readonly #start: string | null
  #rows = 0
  #edge = ''
  /** The place at which it ends before its last row; null: it does not. */
  cut: LedgerCursor | null = null

  constructor(segments: readonly StoredSegment[], folder: string | null, filter: RowFilter, most: number) {
    this.#filter = filter
    this.#most = most
    this.#folder = folder
    this.#sign = filter.order === 'asc' ? 1 : -1
    this.#start = edgeOfCursor(filter)
    const isAway = ({ forgotten_at: at }: StoredSegment): boolean => folder === null || at !== null
    for (const segment of segments.filter(isAway))
      this.#unread.push([segment, segment.forgotten_at === null ? '' : 'it was forgotten, as a row says'])
    this.#waiting = segments
      .filter((segment) => !isAway(segment))
      .toSorted((one, other) => this.#sign * compareTexts(this.#edgeOf(one), this.#edgeOf(other)))
  }

  async *rows<Hot extends MatchingRow>(
    hot: AsyncGenerator<Hot>,
    signal: AbortSignal,
  ): AsyncGenerator<Hot | ArchivedRow> {
    const sources: RowSource<Hot | ArchivedRow>[] = []
    try {
      sources.push({ rest: hot, row: await nextOf(hot), goesOn: false })
      yield* this.#merged(sources, signal)
    } finally {
      // A search whose rows are not read to their end is over.
      for (const { rest } of sources) await rest.return(undefined)
    }
  }

  async *#merged<Hot extends MatchingRow>(
    sources: RowSource<Hot | ArchivedRow>[],
    signal: AbortSignal,
  ): AsyncGenerator<Hot | ArchivedRow> {
    let last: MatchingRow | null = null
    for (;;) {
      const [source] = sources
        .filter(({ row }) => row !== null)
        .toSorted(({ row: one }, { row: other }) => (one && other ? this.#sign * compareRows(one, other) : 0))
      const row = source?.row ?? null
      const [segment] = this.#waiting
      if (segment && !(row && this.#sign * compareTexts(row.recorded_at, this.#edgeOf(segment)) < 0)) {
        if (!this.#mayRead(segment, last !== null)) return this.#endBefore(segment)
        this.#waiting.shift()
        sources.push(await this.#open(segment, signal))
        continue
      }
      if (!source || !row) return
      if (!last || compareRows(last, row) !== 0) yield row
      last = row
      source.row = await nextOf(source.rest)
      if (source.row || !source.goesOn) continue
      this.cut = last
      return
    }
  }

  /** The same of a page that is full: it ends before the segments after it. */
  readPart(): ArchivePart | undefined {
    return this.#read.length > 0 ? this.part() : undefined
  }

  part(): ArchivePart | undefined {
    const [next] = this.#waiting
    const rows = this.#waiting.reduce((sum, { first, last }) => sum + last - first + 1, 0)
    const more = this.cut && next ? { segments: this.#waiting.length, rows, file: next.file } : null
    const unreadable = this.#unread
      .slice(0, MAX_SENTENCES)
      .map(([segment, why]) => archivedSentence(segment, why))
    if (this.#unread.length > MAX_SENTENCES)
      unreadable.push(`So were those of ${this.#unread.length - MAX_SENTENCES} further segments.`)
    const isPart = this.#read.length > 0 || more !== null || unreadable.length > 0
    return isPart ? { read: this.#read, more, unreadable } : undefined
  }

  /** The instant of the first row that it may hold, after the cursor. */
  #edgeOf({ since, until }: StoredSegment): string {
    const edge = this.#sign === 1 ? since : until
    return this.#start !== null && this.#sign * compareTexts(edge, this.#start) < 0 ? this.#start : edge
  }

  /** Segments that begin at one instant are read on one page: the next could not begin between them. */
  #mayRead(segment: StoredSegment, hasRows: boolean): boolean {
    const isFirst = this.#read.length === 0
    if (isFirst || this.#edgeOf(segment) === this.#edge)
      return !isFirst || !hasRows || this.#filter.request_id !== undefined
    return this.#rows + segment.last - segment.first < MAX_ROWS_PER_PAGE
  }

  /** The searches for requests of one principal, who may be any caller, take turns. */
  #key(): { readonly key?: string } {
    const { request_id: id, principal } = this.#filter
    return id !== undefined && principal !== undefined ? { key: principal } : {}
  }

  #endBefore(segment: StoredSegment): void {
    const recorded_at = this.#edgeOf(segment)
    this.cut =
      this.#sign === 1
        ? { recorded_at, stream: '', seq: 0 }
        : { recorded_at, stream: LAST_STREAM, seq: Number.MAX_SAFE_INTEGER }
  }

  async #open(segment: StoredSegment, signal: AbortSignal): Promise<RowSource<ArchivedRow>> {
    const where = { ...fileIn(this.#folder ?? '', segment), first: segment.first }
    const search = { segment: where, filter: this.#filter, most: this.#most }
    const source: RowSource<ArchivedRow> = {
      rest: foundRows(search, { signal, ...this.#key() }, (goesOn) => {
        source.goesOn = goesOn
      }),
      row: null,
      goesOn: false,
    }
    try {
      source.row = await nextOf(source.rest)
      this.#read.push(segment.file)
      this.#rows += segment.last - segment.first + 1
      this.#edge = this.#edgeOf(segment)
    } catch (error) {
      if (!(error instanceof UnreadableSegment)) throw error
      this.#unread.push([segment, error.message])
    }
    return source
  }
}

async function nextOf<Row>(rest: RowSource<Row>['rest']): Promise<Row | null> {
  const { done, value } = await rest.next()
  return done ? null : value
}

const compareTexts = (one: string, other: string): number => (one === other ? 0 : one < other ? -1 : 1)
