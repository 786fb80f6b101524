import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Database } from '../../../db/database.ts'
import type { PlacedRow } from '../../../db/ledger/tree/rows.ts'
import {
  checkpointBefore,
  currentTree,
  newestCheckpoint,
  type StoredCheckpoint,
  type StoredTree,
} from '../../../db/ledger/tree/store.ts'

export interface EvidenceScope {
  readonly tree: StoredTree
  /** Covers every row of the pack. */
  readonly newest: StoredCheckpoint
  /** The index of the first row in the tree, and how many there are. */
  readonly first: number
  readonly count: number
  /** The place before the first row. */
  readonly after: number
  readonly since: string | null
  readonly until: string | null
}

/** Finds the sealed rows recorded since one instant and before another. Null: nothing is sealed. */
export async function scopeOf(
  { kysely, treeRows }: Database,
  since: string | null,
  until: string | null,
): Promise<EvidenceScope | null> {
  const tree = await currentTree(kysely)
  const newest = tree && (await newestCheckpoint(kysely, tree.tree))
  if (!tree || !newest) return null
  const indexOf = async (place: number | null): Promise<number> => {
    if (place === null || place > newest.place) return newest.size
    const before = await checkpointBefore(kysely, tree.tree, place)
    return (before?.size ?? 0) + (await treeRows.between(before?.place ?? 0, place))
  }
  const firstPlace = since === null ? 1 : await treeRows.firstSince(since)
  const first = since === null ? 0 : await indexOf(firstPlace)
  const end = until === null ? newest.size : await indexOf(await treeRows.firstSince(until))
  const after = firstPlace === null ? newest.place : firstPlace - 1
  return { tree, newest, first, count: Math.max(end - first, 0), after, since, until }
}

/** Rows that are read at once. */
const STEP = 128

/** The rows of a pack, in the order of the tree; each page is a short read of its own. */
export async function* rowsIn(
  { treeRows }: Database,
  { after, count }: Pick<EvidenceScope, 'after' | 'count'>,
  signal: AbortSignal,
): AsyncGenerator<PlacedRow> {
  let [last, left] = [after, count]
  while (left > 0) {
    const page = await treeRows.stored(last, Math.min(STEP, left))
    if (page.length === 0) return
    yield* page
    left -= page.length
    last = page.at(-1)?.place ?? last
    await nextTurn(undefined, { signal })
  }
}
