import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Database } from '../../database.ts'
import { archivedLeaves } from '../read/archived-rows.ts'
import { userNameFinder } from '../read/names.ts'
import { MAX_PAGE_BYTES, MAX_PAGE_ROWS } from '../read/stream-page.ts'
import { exportLine } from '../record/leaf.ts'
import { UnreadableSegment } from '../tree/rows.ts'
import { archivedSentence, listSegments, type StoredSegment } from '../tree/segments.ts'
import type { LedgerLine } from './line.ts'

/** The rows that are looked at in one turn of the loop. */
const ROWS_PER_TURN = 64

interface ArchivedLinesQuestion {
  /** The leaves that are not asked for. */
  readonly from: number
  readonly places: ReadonlyMap<string, number>
  readonly names: boolean
}

/** Some rows of segments, and the leaves that are behind a reader which has taken them. */
export interface ArchivedLinesPage {
  readonly lines: readonly LedgerLine[]
  readonly leaves: number
  /** The sentence of the first segment so far that cannot be read. */
  readonly unread: string | null
}

/**
 * Reads the archived rows that are after the places of a reader, page by page, in the order of the tree. Throws one
 * sentence if a row is missing that comes next in its stream: with the segment that cannot be read, if there is one.
 */
export async function* archivedLines(
  database: Pick<Database, 'kysely' | 'archive' | 'engine'>,
  question: ArchivedLinesQuestion,
  signal: AbortSignal,
): AsyncGenerator<ArchivedLinesPage> {
  const namesOf = question.names ? userNameFinder(database.kysely) : () => Promise.resolve({})
  const page = new PageOfLines(question)
  for (const segment of await listSegments(database.kysely)) {
    if (segment.last < question.from || isBehind(database, segment, question.places)) continue
    try {
      for await (const row of archivedLeaves([segment], folderOf(database, segment), signal)) {
        if (page.isNext(row.stream, row.seq)) {
          const line = exportLine(row, await namesOf(row))
          if (page.isFullWith(line)) yield page.cut(segment.first)
          page.add({ stream: row.stream, seq: row.seq, line })
        }
        if (page.isTurnOver()) await nextTurn(undefined, { signal })
      }
      yield page.cut(segment.last + 1)
    } catch (error) {
      if (!(error instanceof UnreadableSegment)) throw error
      page.unread ??= error.message
      yield page.cut(0)
    }
  }
}

/** The rows of one stream have places that are their numbers. */
const isBehind = (
  { engine }: Pick<Database, 'engine'>,
  { last_place: last }: StoredSegment,
  places: ReadonlyMap<string, number>,
): boolean => engine === 'sqlite' && Math.max(0, ...places.values()) >= last

function folderOf({ archive }: Pick<Database, 'archive'>, segment: StoredSegment): string {
  if (segment.forgotten_at !== null)
    throw new UnreadableSegment(archivedSentence(segment, 'it was forgotten, as a row says'))
  if (archive.path === null)
    throw new UnreadableSegment(archivedSentence(segment, 'no folder of an archive is configured'))
  return archive.path
}

class PageOfLines {
  readonly #places: Map<string, number>
  #lines: LedgerLine[] = []
  #bytes = 0
  #turns = 0
  unread: string | null = null

  constructor({ places }: ArchivedLinesQuestion) {
    this.#places = new Map(places)
  }

  isNext(stream: string, seq: number): boolean {
    const place = this.#places.get(stream) ?? 0
    if (seq > place + 1) throw new Error(missingRows(stream, [place + 1, seq - 1], this.unread))
    return seq === place + 1
  }

  isFullWith(line: string): boolean {
    const bytes = this.#bytes + Buffer.byteLength(line)
    return this.#lines.length > 0 && (this.#lines.length >= MAX_PAGE_ROWS || bytes > MAX_PAGE_BYTES)
  }

  add(line: LedgerLine): void {
    this.#places.set(line.stream, line.seq)
    this.#lines.push(line)
    this.#bytes += Buffer.byteLength(line.line)
  }

  isTurnOver(): boolean {
    this.#turns += 1
    return this.#turns % ROWS_PER_TURN === 0
  }

  cut(leaves: number): ArchivedLinesPage {
    const lines = this.#lines
    this.#lines = []
    this.#bytes = 0
    return { lines, leaves: this.unread === null ? leaves : 0, unread: this.unread }
  }
}

/** Says which rows a reader cannot get, and what to do. */
export const missingRows = (
  stream: string,
  [first, last]: readonly [number, number],
  unread: string | null,
): string =>
  `the rows ${stream}:${first} to ${stream}:${last} cannot be read${unread === null ? ': they are in no segment of the archive.' : `. ${unread}`} Bring them back, or rewind to ${stream}:${last + 1}, which leaves them out.`
