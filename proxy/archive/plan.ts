import type { Database } from '../../db/database.ts'
import { archiveBoundary, countSegments } from '../../db/ledger/tree/segments.ts'
import { type StoredState, statesUpTo } from '../../db/ledger/tree/states.ts'
import { currentTree } from '../../db/ledger/tree/store.ts'
import type { ArchivePlan } from '../admin/operation/archive-shapes.ts'
import { daysOf } from './options.ts'
import { DAY_MS, endOfNext, MAX_STATES, type SegmentSize } from './schedule.ts'

/** The bytes of a row in a segment, before there is one to measure. */
const SEGMENT_ROW_BYTES = 250

/** Returns the bytes that a row takes in the segments so far. */
export const bytesARow = ({ rows, bytes }: { readonly rows: number; readonly bytes: number }): number =>
  rows === 0 ? SEGMENT_ROW_BYTES : bytes / rows

/** Says what would move now: rows that are older than a span. */
export async function planArchive(
  database: Pick<Database, 'kysely'>,
  olderThan: string,
  now: number,
  segment?: SegmentSize,
): Promise<ArchivePlan> {
  const { kysely } = database
  const keep = daysOf(olderThan)
  const tree = await currentTree(kysely)
  const { size: first } = await archiveBoundary(kysely)
  const states = tree ? (await statesUpTo(database, tree.tree, tree.size, MAX_STATES)).toReversed() : []
  const ends: number[] = []
  for (let end = endOfNext(states, first, keep, now, segment); end !== null; ) {
    ends.push(end)
    end = endOfNext(states, end, keep, now, segment)
  }
  const last = ends.at(-1) ?? first
  const moved = states.filter(({ leaf }) => leaf > first && leaf <= last)
  return {
    older_than: olderThan,
    segments: ends.length,
    rows: last - first,
    days: new Set(moved.map(dayOf)).size,
    bytes: Math.round((last - first) * bytesARow(await countSegments(kysely))),
    nothing: ends.length > 0 ? null : whyNothing(states, first, keep, now),
  }
}

const dayOf = ({ at }: Pick<StoredState, 'at'>): string => at.slice(0, 10)

function whyNothing(states: readonly StoredState[], first: number, keep: number, now: number): string {
  const behind = states.filter(({ leaf }) => leaf > first)
  const [next] = behind
  if (!next)
    return `no state is recorded behind row ${first} yet: one is once a day, if 256 rows were sealed since the last`
  if (Date.parse(next.at) > now - keep * DAY_MS)
    return `the oldest rows here are those before ${next.at}, and not ${keep} days old`
  const seen = new Set(behind.slice(1).map(dayOf))
  seen.delete(dayOf(next))
  return `the rows before ${next.at} are old by the clock, but a state was recorded on only ${seen.size} of the ${keep} days since: a clock that is set ahead makes nothing old`
}
