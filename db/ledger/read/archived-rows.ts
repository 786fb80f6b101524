import { SHOWN_COLUMNS, type StoredRow } from '../record/leaf.ts'
import type { StoredSegment } from '../tree/segments.ts'
import { intactRows } from '../verify/export.ts'
import type { RowFilter } from './find.ts'
import { fileIn, foundRows, naming, segmentBlocks } from './segment-pool.ts'

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
    const blocks = segmentBlocks(fileIn(folder, segment), signal)
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
