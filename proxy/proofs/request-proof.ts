import type { Database } from '../../db/database.ts'
import { inclusionProof, tlogProofText } from '../../db/ledger/tree/proofs.ts'
import type { PlacedLeaf } from '../../db/ledger/tree/rows.ts'
import {
  currentTree,
  indexOfPlace,
  newestCheckpoint,
  noteOfCheckpoint,
  tileReader,
} from '../../db/ledger/tree/store.ts'
import type { ReadTile } from '../../db/ledger/tree/tiles.ts'

/** A row of a request with its proof. */
export interface ProvenRow {
  /** The exact bytes of the leaf, as text. */
  readonly leaf: string
  readonly stream: string
  readonly seq: number
  /** C2SP tlog-proof, against the newest checkpoint. */
  readonly proof: string
}

/** Proves the rows of a request by the newest checkpoint; null if one of them is not sealed yet, or archived. */
export async function proveRows(
  { kysely, treeRows }: Pick<Database, 'kysely' | 'treeRows'>,
  rows: readonly PlacedLeaf[],
): Promise<readonly ProvenRow[] | null> {
  const tree = await currentTree(kysely)
  const newest = tree && (await newestCheckpoint(kysely, tree.tree))
  if (!tree || !newest || rows.some(({ place }) => place > newest.place)) return null
  const note = await noteOfCheckpoint(kysely, tree, newest)
  const read = cachedTiles(tileReader(kysely, tree.tree))
  const proven: ProvenRow[] = []
  for (const { place, leaf, stream, seq } of rows) {
    const index = await indexOfPlace({ kysely, treeRows }, tree.tree, place)
    if (index === null) return null
    const hashes = await inclusionProof(read, index, newest.size)
    proven.push({ leaf, stream, seq, proof: tlogProofText(index, hashes, note) })
  }
  return proven
}

/**
 * The tiles of one proof are those of its neighbours. A tile is read whole, as wide as it is first asked for.
 */
function cachedTiles(read: ReadTile): ReadTile {
  const known = new Map<string, Buffer>()
  return async (place, width) => {
    const key = `${place.level}/${place.n}`
    const found = known.get(key)
    if (found && found.length >= width * 32) return found
    const tile = await read(place, width)
    known.set(key, tile)
    return tile
  }
}
