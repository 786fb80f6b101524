import { setImmediate as nextTurn } from 'node:timers/promises'
import { type TaskRequester, ThreadPool } from '../../support/thread.ts'
import { LedgerError } from '../record/entry.ts'
import { HASH_BYTES } from '../tree/hashes.ts'
import { UnreadableSegment, unreadableSegment } from '../tree/rows.ts'
import { archivedSentence, type StoredSegment } from '../tree/segments.ts'
import { type ReadTile, TILE_WIDTH, tilePath } from '../tree/tiles.ts'
import type { SegmentFile } from './segment-file.ts'
import type { SegmentIndex } from './segment-index.ts'
import type { ArchivedRow, SegmentReaderTasks, SegmentSearch } from './segment-thread.ts'

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

/** Says that a caller, or all of them, search for too much at once. */
export const tooManySearches = (): LedgerError =>
  new LedgerError('busy', 'the archive is searched for as many requests as may be')

/** The blocks of lines of a segment. */
export const segmentBlocks = (segment: SegmentFile, signal: AbortSignal): AsyncGenerator<Uint8Array> =>
  threads.stream('rows', segment, { signal })

let turns: Promise<void> = Promise.resolve()

/** Waits for a turn of the loop for one piece alone: pieces of many searches come together, and each takes some ms. */
const ownTurn = (): Promise<void> => {
  turns = turns.then(() => nextTurn())
  return turns
}

/** The rows that a search finds. `onEnd` is told whether there are more. */
export async function* foundRows(
  search: SegmentSearch,
  requester: TaskRequester,
  onEnd: (goesOn: boolean) => void = () => {},
): AsyncGenerator<ArchivedRow> {
  const pieces = threads.stream('find', search, requester)
  try {
    let next = await pieces.next()
    for (; !next.done; next = await pieces.next()) {
      await ownTurn()
      yield* next.value
    }
    onEnd(next.value)
  } finally {
    await pieces.return(false)
  }
}

export const fileIn = (folder: string, { file, sha256 }: StoredSegment): SegmentFile => ({
  folder,
  file,
  sha256,
})

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

/** The error of a segment that cannot be read, with its place. */
export const naming = (segment: StoredSegment, error: unknown): unknown =>
  error instanceof UnreadableSegment ? new UnreadableSegment(archivedSentence(segment, error.message)) : error

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
