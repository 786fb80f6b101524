import type { Database } from '../../db/database.ts'
import { archiveBoundary, segmentOfLeaf } from '../../db/ledger/tree/segments.ts'
import type { StoredTree } from '../../db/ledger/tree/store.ts'
import { checkpointUpTo, currentTree, tileReader } from '../../db/ledger/tree/store.ts'
import { hashesAt, TILE_WIDTH } from '../../db/ledger/tree/tiles.ts'
import { archivedRefusal } from '../admin/audit/scope.ts'

/** A tile that is asked for by its path; `level` is null if it is a bundle of entries. */
export interface RequestedTile {
  readonly level: number | null
  readonly n: number
  readonly width: number
}

const MAX_TILE_LEVEL = 6

/**
 * Reads the path of a tile after `tile/` (C2SP tlog-tiles): `<L>/<N>[.p/<W>]`, where each three digits of N
 * but the last follow an x. Null if it is none, or one of the same tile in another spelling.
 */
export function parseTilePath(path: string): RequestedTile | null {
  const [, first = '', groups = '', last = '', width] =
    /^(entries|[0-9]{1,2})\/((?:x[0-9]{3}\/){0,4})([0-9]{3})(?:\.p\/([1-9][0-9]{0,2}))?$/.exec(path) ?? []
  if (last === '' || groups.startsWith('x000/')) return null
  const level = first === 'entries' ? null : Number(first)
  if (level !== null && (level > MAX_TILE_LEVEL || String(level) !== first)) return null
  const wide = width === undefined ? TILE_WIDTH : Number(width)
  if (width !== undefined && wide >= TILE_WIDTH) return null
  return { level, n: Number(groups.replaceAll(/[x/]/g, '') + last), width: wide }
}

/** A tile of the tree in force as its bytes; null if the newest checkpoint does not cover it. */
export async function readTreeTile(
  { kysely }: Pick<Database, 'kysely'>,
  { level, n, width }: { readonly level: number; readonly n: number; readonly width: number },
): Promise<Buffer | null> {
  const tree = await currentTree(kysely)
  if (!tree || hashesAt(tree.size, level) < n * TILE_WIDTH + width) return null
  if (level === 0) await assertKept(kysely, n)
  return tileReader(kysely, tree.tree)({ level, n }, width)
}

/**
 * A bundle of entries (C2SP tlog-tiles): each leaf after its length in two bytes. Null as {@link
 * readTreeTile}.
 */
export async function readEntries(
  database: Pick<Database, 'kysely' | 'treeRows'>,
  { n, width }: { readonly n: number; readonly width: number },
): Promise<Buffer | null> {
  const tree = await currentTree(database.kysely)
  const first = n * TILE_WIDTH
  if (!tree || tree.size < first + width) return null
  await assertKept(database.kysely, n)
  const leaves = await leavesFrom(database, tree, first, width)
  return Buffer.concat(
    leaves.flatMap((leaf) => {
      const bytes = Buffer.from(leaf)
      const length = Buffer.alloc(2)
      length.writeUInt16BE(bytes.length)
      return [length, bytes]
    }),
  )
}

/** Refuses a tile of leaves, or a bundle, that is archived. */
async function assertKept(kysely: Database['kysely'], n: number): Promise<void> {
  const segment = await segmentOfLeaf(kysely, n * TILE_WIDTH)
  if (segment) throw archivedRefusal(segment)
}

/** The leaves of a tree from an index on. */
export async function leavesFrom(
  { kysely, treeRows }: Pick<Database, 'kysely' | 'treeRows'>,
  { tree }: Pick<StoredTree, 'tree'>,
  first: number,
  count: number,
): Promise<readonly string[]> {
  // A checkpoint says at which place a size is reached: from the last one before, it is not far.
  const [before, archived] = [await checkpointUpTo(kysely, tree, first), await archiveBoundary(kysely)]
  const from = before && before.size > archived.size ? before : archived
  return treeRows.leaves(from.place, first - from.size, count)
}
