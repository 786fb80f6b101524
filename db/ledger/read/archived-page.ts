import type { LedgerCursor } from '../../support/cursor.ts'
import { UnreadableSegment } from '../tree/rows.ts'
import { archivedSentence, type StoredSegment } from '../tree/segments.ts'
import { compareRows, type MatchingRow, type RowFilter } from './find.ts'
import { fileIn, foundRows } from './segment-pool.ts'
import type { ArchivedRow } from './segment-thread.ts'
import { edgeOfCursor } from './segments-for.ts'

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
