import type { Database } from '../../db/database.ts'
import { archivedRequest } from '../../db/ledger/read/archived-request.ts'
import { archivedTiles } from '../../db/ledger/read/segment-pool.ts'
import type { ArchivedRow } from '../../db/ledger/read/segment-thread.ts'
import { leafMemberText } from '../../db/ledger/record/leaf.ts'
import { inclusionProof, tlogProofText } from '../../db/ledger/tree/proofs.ts'
import type { PlacedLeaf } from '../../db/ledger/tree/rows.ts'
import { archiveBoundary, listSegments } from '../../db/ledger/tree/segments.ts'
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

/** A row of a request. `index`: of its leaf, if it is archived. */
export interface RequestRow extends Pick<PlacedLeaf, 'stream' | 'seq' | 'principal_id' | 'leaf'> {
  readonly place?: number
  readonly index?: number
}

interface RequestedRows {
  readonly rows: readonly RequestRow[]
  /** The part of them that was found in segments. */
  readonly archived: readonly ArchivedRow[]
  /** The places of rows that cannot be read here, each as a sentence. */
  readonly unreadable: readonly string[]
}

/**
 * Finds the rows of a request in the database and, if its decision is not there, in the archive. `principal`: whose
 * rows alone may be seen; null: all.
 */
export async function rowsOfRequest(
  { kysely, treeRows, archive }: Pick<Database, 'kysely' | 'treeRows' | 'archive'>,
  asked: Parameters<typeof archivedRequest>[2],
): Promise<RequestedRows> {
  const { id, principal } = asked
  const { place } = await archiveBoundary(kysely)
  const hot = (await treeRows.ofRequest(id)).filter(
    (row) => row.place > place && (principal === null || row.principal_id === principal),
  )
  const [first] = hot
  if (place === 0 || (first && /^(?:allowed|denied)$/.test(leafMemberText(first.leaf, 'status') ?? '')))
    return { rows: hot, archived: [], unreadable: [] }
  const { rows: archived, unreadable } = await archivedRequest(kysely, archive.path, asked)
  // An outcome alone, whose decision cannot be read, is none of a call.
  const rows = archived.length === 0 && unreadable.length > 0 ? [] : [...archived, ...hot]
  return { rows, archived, unreadable }
}

/** Proves the rows of a request by the newest checkpoint; null if one of them is not sealed yet. */
export async function proveRows(
  { kysely, treeRows, archive }: Pick<Database, 'kysely' | 'treeRows' | 'archive'>,
  rows: readonly RequestRow[],
): Promise<readonly ProvenRow[] | null> {
  const tree = await currentTree(kysely)
  const newest = tree && (await newestCheckpoint(kysely, tree.tree))
  if (!tree || !newest || rows.some(({ place = 0 }) => place > newest.place)) return null
  const note = await noteOfCheckpoint(kysely, tree, newest)
  const segments = rows.some(({ index }) => index !== undefined) ? await listSegments(kysely) : []
  const read = cachedTiles(archivedTiles(segments, archive.path ?? '', tileReader(kysely, tree.tree)))
  const proven: ProvenRow[] = []
  for (const { place = 0, leaf, stream, seq, ...row } of rows) {
    const index = row.index ?? (await indexOfPlace({ kysely, treeRows }, tree.tree, place))
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
