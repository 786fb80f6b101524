import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Database } from '../../../db/database.ts'
import { archivedRows, archivedSince } from '../../../db/ledger/read/archived-rows.ts'
import { readableSegments } from '../../../db/ledger/read/segments-for.ts'
import type { StoredRow } from '../../../db/ledger/record/leaf.ts'
import type { PlacedRow } from '../../../db/ledger/tree/rows.ts'
import {
  type ArchiveBoundary,
  archiveBoundary,
  archivedSentence,
  type StoredSegment,
} from '../../../db/ledger/tree/segments.ts'
import { type StoredState, statesUpTo } from '../../../db/ledger/tree/states.ts'
import {
  checkpointUpTo,
  currentTree,
  indexOfPlace,
  newestCheckpoint,
  type StoredCheckpoint,
  type StoredTree,
} from '../../../db/ledger/tree/store.ts'
import { edgeOf, hashesAt, TILE_WIDTH, type TilePlace } from '../../../db/ledger/tree/tiles.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { AdminContext } from '../operation/context.ts'

/** The most checkpoints with statements of others in a pack. */
const MAX_COSIGNED = 100

/** The checkpoints of a pack: the newest, the one that ends it, and those with statements of anchors. */
export async function checkpointsOf(
  { kysely }: Pick<Database, 'kysely'>,
  { tree, newest, first, count }: EvidenceScope,
): Promise<readonly StoredCheckpoint[]> {
  const rows = await kysely
    .selectFrom('audit_cosignatures')
    .select('size')
    .distinct()
    .where('tree', '=', tree.tree)
    .where('size', '>', first)
    .where('size', '<=', newest.size)
    .orderBy('size', 'desc')
    .limit(MAX_COSIGNED)
    .execute()
  const atEnd = await checkpointUpTo(kysely, tree.tree, first + count)
  const sizes = new Set([...rows.map(({ size }) => size), ...(atEnd && atEnd.size > 0 ? [atEnd.size] : [])])
  const found: StoredCheckpoint[] = []
  for (const size of sizes) {
    const stored = await checkpointUpTo(kysely, tree.tree, size)
    if (stored?.size === size && size < newest.size) found.push(stored)
  }
  return [...found.toSorted((one, other) => one.size - other.size), newest]
}

/**
 * The tiles that bind the rows of a pack to its checkpoints: theirs, all above them, and the edge of each
 * checkpoint, as wide as under the newest.
 */
export function* tilesOf(
  { newest, first, count }: EvidenceScope,
  checkpoints: readonly StoredCheckpoint[],
): Generator<TilePlace & { readonly width: number }> {
  const extra = new Map<string, TilePlace>()
  for (const { size } of checkpoints) {
    for (const { level, n, width } of edgeOf(size)) {
      if (width === 0) continue
      for (let [l, m] = [level, n]; hashesAt(newest.size, l) > 0; l += 1, m = Math.floor(m / TILE_WIDTH)) {
        extra.set(`${l}/${m}`, { level: l, n: m })
      }
    }
  }
  const end = first + count
  for (
    let [level, below] = [0, TILE_WIDTH];
    hashesAt(newest.size, level) > 0;
    level += 1, below *= TILE_WIDTH
  ) {
    const last = count > 0 ? Math.floor((end - 1) / below) : -1
    for (let n = Math.floor(first / below); n <= last; n += 1) {
      const width = widthOf(newest.size, level, n)
      extra.delete(`${level}/${n}`)
      if (width > 0) yield { level, n, width }
    }
  }
  for (const { level, n } of extra.values()) {
    const width = widthOf(newest.size, level, n)
    if (width > 0) yield { level, n, width }
  }
}

const widthOf = (size: number, level: number, n: number): number =>
  Math.min(TILE_WIDTH, hashesAt(size, level) - n * TILE_WIDTH)

export interface EvidenceScope {
  readonly tree: StoredTree
  /** Covers every row of the pack. */
  readonly newest: StoredCheckpoint
  /** The index of the first row in the tree, and how many there are. */
  readonly first: number
  readonly count: number
  /** The place before the first row. */
  readonly after: number
  /** The state before the first row, if a row of the pack says it. */
  readonly state: StoredState | null
  /** The segments from the one on that it begins with, and their folder. None: it begins in the database. */
  readonly segments: readonly StoredSegment[]
  readonly folder: string
  /** The rows that are in files. None of the pack is among them, unless it begins there or is that file. */
  readonly archived: ArchiveBoundary
  /** True: users have their names beside their pseudonyms. A file that outlives their erasure has none. */
  readonly named: boolean
  readonly since: string | null
  readonly until: string | null
}

/**
 * Finds the sealed rows recorded since one instant and before another, from the beginning of a segment if they
 * begin in one that can be read. Null: nothing is sealed.
 */
export async function scopeOf(
  database: Database,
  since: string | null,
  until: string | null,
  signal: AbortSignal,
): Promise<EvidenceScope | null> {
  const { kysely, treeRows } = database
  const tree = await currentTree(kysely)
  const newest = tree && (await newestCheckpoint(kysely, tree.tree))
  if (!tree || !newest) return null
  const indexOf = async (place: number | null): Promise<number> => {
    if (place === null || place > newest.place) return newest.size
    return (await indexOfPlace({ kysely, treeRows }, tree.tree, place)) ?? archived.size
  }
  const archived = await archiveBoundary(kysely)
  const folder = database.archive.path ?? ''
  const readable = await readableSegments(kysely, folder)
  const begin = readable.findIndex(({ until: last }) => since === null || last >= since)
  const segments = begin < 0 ? [] : readable.slice(begin)
  const [segment] = segments
  const found = since === null ? 1 : await treeRows.firstSince(since)
  const firstPlace = found && Math.max(found, archived.place + 1)
  const first = segment ? segment.first : await indexOf(firstPlace)
  const end =
    until === null
      ? newest.size
      : ((await archivedSince(folder, readable, until, signal)) ??
        (await indexOf(await treeRows.firstSince(until))))
  const after = segment ? archived.place : firstPlace === null ? newest.place : firstPlace - 1
  const count = Math.max(end - first, 0)
  const bounds = { first, count, after, segments, folder, archived, named: true, since, until }
  const scope = { tree, newest, state: null, ...bounds }
  const state = first === 0 || segment || count === 0 ? null : await stateBefore(database, scope)
  return state ? { ...scope, first: state.leaf, count: end - state.leaf, after: state.place, state } : scope
}

/** The states that are looked at: the row of one stands some seconds after the rows that made it. */
const STATES_TRIED = 3

/** The newest state before the first row of a pack that one of its rows says. */
async function stateBefore(
  database: Database,
  { tree, first, count, archived }: EvidenceScope,
): Promise<StoredState | null> {
  const last = first + count
  for (const state of await statesUpTo(database, tree.tree, first, STATES_TRIED)) {
    const place = await database.treeRows.placeOf(state)
    if (place === null || state.leaf < archived.size) continue
    const index = state.leaf + (await database.treeRows.between(state.place, place))
    if (index < last) return state
  }
  return null
}

/** The rows that are read at once, and their characters, by those of the rows before them. */
const [MIN_PAGE_ROWS, MAX_PAGE_ROWS, PAGE_CHARACTERS] = [64, 256, 262_144]

/** The rows of a pack, in the order of the tree, by pages. */
export async function* packedPages(
  database: Pick<Database, 'treeRows'>,
  { first, after, count, segments, folder, archived }: EvidenceScope,
  signal: AbortSignal,
): AsyncGenerator<readonly StoredRow[]> {
  const end = segments.length > 0 ? Math.min(first + count, archived.size) : first
  let page: StoredRow[] = []
  for await (const row of archivedRows(segments, folder, signal, end)) {
    page.push(row)
    if (page.length < MAX_PAGE_ROWS) continue
    yield page
    page = []
  }
  if (page.length > 0) yield page
  yield* pagesIn(database, { after, count: first + count - end }, signal)
}

/** Rows of the database after a place; each page is a short read of its own, done one ahead. */
export async function* pagesIn(
  { treeRows }: Pick<Database, 'treeRows'>,
  { after, count }: Pick<EvidenceScope, 'after' | 'count'>,
  signal: AbortSignal,
): AsyncGenerator<readonly PlacedRow[]> {
  let [last, left, most] = [after, count, MIN_PAGE_ROWS]
  for (let next = treeRows.stored(last, Math.min(most, left)); left > 0; ) {
    const page = await next
    const end = page.at(-1)
    if (!end) return
    left -= page.length
    last = end.place
    const characters = page.reduce((sum, { leaf }) => sum + leaf.length, 0)
    most = Math.min(MAX_PAGE_ROWS, Math.ceil((PAGE_CHARACTERS * page.length) / characters))
    next = left > 0 ? treeRows.stored(last, Math.min(most, left)) : next
    // Whoever reads no more asks no more for it.
    next.catch(() => {})
    yield page
    await nextTurn(undefined, { signal })
  }
}

/** The refusal of what is in a file of the archive. */
export const archivedRefusal = (segment: StoredSegment): Refusal =>
  new Refusal('not_found', { message: archivedSentence(segment) })

/** The refusal of what no checkpoint covers: it will be covered in a second, or never. */
export const notSealed = ({ stopped }: AdminContext['sealing']): Refusal =>
  stopped
    ? new Refusal('sealing_stopped')
    : new Refusal('not_sealed_yet', { headers: { 'retry-after': '1' } })
