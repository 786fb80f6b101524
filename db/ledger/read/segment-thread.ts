// The thread that reads segments: a million rows take seconds to inflate and look through. One for all, which
// gives way to calls; its tasks give way to each other between two blocks.

import { type LedgerCursor, parseLedgerCursor } from '../../support/cursor.ts'
import { lowerThreadPriority } from '../../support/give-way.ts'
import { timestamp } from '../../support/statement.ts'
import { leafMemberText, type StoredRow } from '../record/leaf.ts'
import { intactRows } from '../verify/export.ts'
import { compareRows, type MatchingRow, type RowFilter } from './find.ts'
import { memberPieces, rowBlocks, type SegmentFile } from './segment-file.ts'
import { type SegmentIndex, SegmentIndexer } from './segment-index.ts'

/** A row of a segment. `index`: of its leaf in the tree. */
export type ArchivedRow = MatchingRow & { readonly index: number }

export interface SegmentSearch {
  readonly segment: SegmentFile & { readonly first: number }
  readonly filter: RowFilter
  readonly most: number
}

export interface SegmentReaderTasks {
  /** The first rows that fit, in the order of the filter, in pieces. Returns true if there are more. */
  readonly find: (
    search: SegmentSearch,
    signal: AbortSignal,
  ) => AsyncGenerator<readonly ArchivedRow[], boolean, void>
  /** Blocks of whole lines of the rows of a segment. */
  readonly rows: (segment: SegmentFile, signal: AbortSignal) => AsyncGenerator<Uint8Array>
  readonly member: (
    from: { readonly segment: SegmentFile; readonly name: string },
    signal: AbortSignal,
  ) => Promise<Uint8Array>
  readonly index: (segment: SegmentFile, signal: AbortSignal) => Promise<SegmentIndex>
}

export function openTasks(): SegmentReaderTasks {
  lowerThreadPriority()
  return { find, rows: rowBlocks, member, index }
}

/** The leaves that one search holds at most, but for one. Characters. */
const MAX_FOUND_CHARACTERS = 8 * 1_048_576
/** The leaves, but for one, of the rows that are handed over at once: others get their turn. Characters. */
const MAX_PIECE_CHARACTERS = 65_536
const LF = 0x0a

async function* find(
  { segment, filter, most }: SegmentSearch,
  signal: AbortSignal,
): ReturnType<SegmentReaderTasks['find']> {
  const found = new FoundWindow(filter.order ?? 'desc', most)
  const fits = fitting(filter)
  const text = filter.request_id ?? filter.principal
  const needle = text === undefined ? null : Buffer.from(JSON.stringify(text))
  let index = segment.first
  for await (const block of rowBlocks(segment, signal)) {
    if (needle !== null && !block.includes(needle)) {
      for (let at = block.indexOf(LF); at >= 0; at = block.indexOf(LF, at + 1)) index += 1
      continue
    }
    for (const row of intactRows(block)) {
      const key = fits(row)
      if (key) found.add(row, key, index)
      index += 1
    }
  }
  yield* found.pieces()
  return found.goesOn
}

function fitting({ principal, action, status, request_id: id, since, until, cursor, order }: RowFilter) {
  const [from, to] = [since, until].map((at) => (at === undefined ? null : timestamp(at)))
  const edge = cursor === undefined ? null : parseLedgerCursor(cursor)
  /** The place of a row in the order; null: it does not fit. */
  return (row: StoredRow): FoundKey | null => {
    if (action !== undefined && row.action !== action) return null
    if (status !== undefined && row.status !== status) return null
    if (id !== undefined && row.request_id !== id) return null
    const key = keyOf(row)
    if ((from && key.recorded_at < from) || (to && key.recorded_at >= to)) return null
    if (edge && (order === 'asc' ? -1 : 1) * compareRows(key, edge) >= 0) return null
    return principal === undefined || row.principal_id === principal ? key : null
  }
}

/** The place of a row in the order of lists, with its leaf. */
type FoundKey = LedgerCursor & Pick<StoredRow, 'leaf'>

// The leaf is not parsed for it.
const keyOf = ({ leaf, stream, seq }: StoredRow): FoundKey => ({
  ...{ recorded_at: leafMemberText(leaf, 'recorded_at') ?? '', stream, seq, leaf },
})

type FoundRow = Omit<ArchivedRow, 'principal_id'>

/** The first rows of an order, as many as are wanted and fit in memory. */
class FoundWindow {
  readonly #rows: FoundRow[] = []
  readonly #sign: 1 | -1
  readonly #most: number
  /** The first row that was left out: none after it is taken. */
  #end: FoundRow | null = null
  #characters = 0

  constructor(order: 'asc' | 'desc', most: number) {
    this.#sign = order === 'asc' ? 1 : -1
    this.#most = most
  }

  add(row: StoredRow, key: FoundKey, index: number): void {
    if (this.#end && this.#sign * compareRows(key, this.#end) > 0) return
    const { request_id, action, status, row_hash } = row
    this.#rows.splice(this.#placeOf(key), 0, { ...key, request_id, action, status, row_hash, index })
    this.#characters += key.leaf.length
    while (
      this.#rows.length > this.#most ||
      (this.#characters > MAX_FOUND_CHARACTERS && this.#rows.length > 1)
    ) {
      this.#end = this.#rows.pop() ?? null
      this.#characters -= this.#end?.leaf.length ?? 0
    }
  }

  /** The rows with what is read only by parsing their leaves. */
  *pieces(): Generator<readonly ArchivedRow[]> {
    let [piece, characters]: [ArchivedRow[], number] = [[], 0]
    for (const row of this.#rows) {
      // Proven by the ledger: a leaf is the JSON of an object with these members.
      const { principal_id } = JSON.parse(row.leaf) as Pick<StoredRow, 'principal_id'>
      piece.push({ ...row, principal_id })
      characters += row.leaf.length
      if (characters < MAX_PIECE_CHARACTERS) continue
      yield piece
      ;[piece, characters] = [[], 0]
    }
    if (piece.length > 0) yield piece
  }

  get goesOn(): boolean {
    return this.#end !== null
  }

  #placeOf(key: LedgerCursor): number {
    let [low, high] = [0, this.#rows.length]
    while (low < high) {
      const middle = (low + high) >> 1
      const other = this.#rows[middle]
      if (other && this.#sign * compareRows(other, key) < 0) low = middle + 1
      else high = middle
    }
    return low
  }
}

async function member(
  { segment, name }: { readonly segment: SegmentFile; readonly name: string },
  signal: AbortSignal,
): Promise<Uint8Array> {
  const pieces: Buffer[] = []
  for await (const piece of memberPieces(segment, name, signal)) pieces.push(piece)
  return Uint8Array.from(Buffer.concat(pieces))
}

async function index(segment: SegmentFile, signal: AbortSignal): Promise<SegmentIndex> {
  const indexer = new SegmentIndexer()
  for await (const block of rowBlocks(segment, signal)) for (const row of intactRows(block)) indexer.see(row)
  return indexer.index()
}
