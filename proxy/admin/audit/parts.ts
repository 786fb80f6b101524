import type { Database } from '../../../db/database.ts'
import { checkpointUpTo, type StoredCheckpoint } from '../../../db/ledger/tree/store.ts'
import { edgeOf, hashesAt, TILE_WIDTH, type TilePlace } from '../../../db/ledger/tree/tiles.ts'
import type { EvidenceScope } from './scope.ts'

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
