import { type Kysely, type RawBuilder, type Selectable, sql } from 'kysely'
import type { Database } from '../../database.ts'
import type { DatabaseSchema } from '../../schema.ts'
import { type LedgerStatement, statementOf, timestamp } from '../../support/statement.ts'
import { type Checkpoint, checkpointText } from './checkpoint.ts'
import { HASH_BYTES } from './hashes.ts'
import { noteOf } from './note.ts'
import { archiveBoundary } from './segments.ts'
import { edgeOf, type ReadTile, rootOf, type TreeTile } from './tiles.ts'
import type { TreeStart } from './walk.ts'

type TreeDatabase = Kysely<DatabaseSchema>

export type StoredTree = Selectable<DatabaseSchema['audit_trees']>
export type StoredCheckpoint = Selectable<DatabaseSchema['audit_checkpoints']>

export const currentTree = (db: TreeDatabase): Promise<StoredTree | undefined> =>
  db.selectFrom('audit_trees').selectAll().orderBy('tree', 'desc').limit(1).executeTakeFirst()

export async function countUnsealed({
  kysely,
  treeRows,
}: Pick<Database, 'kysely' | 'treeRows'>): Promise<number> {
  const tree = await currentTree(kysely)
  return treeRows.between(tree?.place ?? 0, Number.MAX_SAFE_INTEGER)
}

/**
 * Tells whether the tree that grows is the one that its newest checkpoint was signed for, and has all rows.
 * `standing`: what of it changes when it grows.
 */
export async function isTreeAsSigned({
  kysely,
  treeRows,
}: Pick<Database, 'kysely' | 'treeRows'>): Promise<{ readonly standing: string; readonly isWhole: boolean }> {
  const tree = await currentTree(kysely)
  if (!tree) return { standing: '', isWhole: false }
  const { size, place } = tree
  const newest = (await newestCheckpoint(kysely, tree.tree)) ?? { size: 0, place: 0 }
  const fits = newest.size === size && newest.place === place
  const isThere = place === 0 || (await treeRows.between(place - 1, place + 1)) === 1
  const { hashes } = await treeRows.hashes(place, 1)
  const standing = [tree.tree, size, place, newest.size, newest.place].join('/')
  return { standing, isWhole: fits && isThere && hashes.length === 0 }
}

/** Reads tiles of a tree, of width 0 as they are. Throws if one is narrower than asked for. */
export const tileReader =
  (db: TreeDatabase, tree: number): ReadTile =>
  async ({ level, n }, width) => {
    const row = await db
      .selectFrom('audit_tiles')
      .select('hashes')
      .where('tree', '=', tree)
      .where('level', '=', level)
      .where('n', '=', n)
      .executeTakeFirst()
    const hashes = Buffer.from(row?.hashes ?? [])
    if (hashes.length < width * HASH_BYTES)
      throw new Error(
        `tile ${level}/${n} of the audit tree has ${hashes.length / HASH_BYTES} hashes, not ${width}`,
      )
    return width === 0 ? hashes : hashes.subarray(0, width * HASH_BYTES)
  }

export const readEdge = (read: ReadTile, size: number): Promise<readonly Buffer[]> =>
  Promise.all(
    edgeOf(size).map(({ width, ...place }) =>
      width === 0 ? Promise.resolve(Buffer.alloc(0)) : read(place, width),
    ),
  )

const checkpoints = (db: TreeDatabase, tree: number) =>
  db.selectFrom('audit_checkpoints').selectAll().where('tree', '=', tree)

export const newestCheckpoint = (db: TreeDatabase, tree: number): Promise<StoredCheckpoint | undefined> =>
  checkpoints(db, tree).orderBy('size', 'desc').limit(1).executeTakeFirst()

export const checkpointOfSize = (
  db: TreeDatabase,
  tree: number,
  size: number,
): Promise<StoredCheckpoint | undefined> => checkpoints(db, tree).where('size', '=', size).executeTakeFirst()

/** The last checkpoint before a row at a place; undefined if the row is under the first. */
const checkpointBefore = (
  db: TreeDatabase,
  tree: number,
  place: number,
): Promise<StoredCheckpoint | undefined> =>
  checkpoints(db, tree).where('place', '<', place).orderBy('place', 'desc').limit(1).executeTakeFirst()

/** The index of the leaf at a place; null if it is archived. */
export async function indexOfPlace(
  { kysely, treeRows }: Pick<Database, 'kysely' | 'treeRows'>,
  tree: number,
  place: number,
): Promise<number | null> {
  const archived = await archiveBoundary(kysely)
  if (place <= archived.place) return null
  const before = await checkpointBefore(kysely, tree, place)
  const from = before && before.size > archived.size ? before : archived
  return from.size + (await treeRows.between(from.place, place))
}

/** The last checkpoint of at most so many leaves. */
export const checkpointUpTo = (
  db: TreeDatabase,
  tree: number,
  size: number,
): Promise<StoredCheckpoint | undefined> =>
  checkpoints(db, tree).where('size', '<=', size).orderBy('size', 'desc').limit(1).executeTakeFirst()

export async function noteOfCheckpoint(
  db: TreeDatabase,
  { origin }: StoredTree,
  stored: StoredCheckpoint,
): Promise<string> {
  const cosigned = await db
    .selectFrom('audit_cosignatures')
    .select('proof')
    .where('tree', '=', stored.tree)
    .where('size', '=', stored.size)
    .where('proof', 'like', '— %')
    .orderBy('anchor')
    .execute()
  const lines = [...stored.signatures.split('\n'), ...cosigned.map(({ proof }) => proof)]
  return noteOf(checkpointText(checkpointOf(origin, stored)), lines)
}

export const checkpointOf = (
  origin: string,
  { size, root }: Pick<StoredCheckpoint, 'size' | 'root'>,
): Checkpoint => ({
  origin,
  size,
  root: Buffer.from(root, 'base64'),
})

export interface TreeGrowth {
  readonly from: Pick<StoredTree, 'tree' | 'size'>
  readonly to: Pick<StoredTree, 'size' | 'place'>
  readonly tiles: readonly TreeTile[]
  readonly root: Buffer
  /** The lines of the log's signatures. */
  readonly signatures: readonly string[]
  readonly at: number
}

/**
 * Grows a tree, all or none: if another process has, the first statement changes no row. So no two
 * checkpoints are of one size.
 */
export function growTree(
  db: TreeDatabase,
  { from, to, tiles, root, signatures, at }: TreeGrowth,
): readonly LedgerStatement[] {
  const { tree } = from
  const grow = db
    .updateTable('audit_trees')
    .set({ size: to.size, place: to.place })
    .where('tree', '=', tree)
    .where('size', '=', from.size)
  const store = (tile: TreeTile) =>
    db
      .insertInto('audit_tiles')
      .values({ tree, level: tile.level, n: tile.n, hashes: tile.hashes })
      .onConflict((known) =>
        known.columns(['tree', 'level', 'n']).doUpdateSet({ hashes: (row) => row.ref('excluded.hashes') }),
      )
  const row = {
    tree,
    ...to,
    root: root.toString('base64'),
    signed_at: timestamp(at),
    signatures: signatures.join('\n'),
  }
  const upkeep = { beside: 'upkeep' } as const
  return [
    { ...statementOf(grow.compile(), 1), ...upkeep },
    ...tiles.map((tile) => ({ ...statementOf(store(tile).compile(), 1), ...upkeep })),
    { ...statementOf(db.insertInto('audit_checkpoints').values(row).compile(), 1), ...upkeep },
  ]
}

/** The edge of the tree in force at a size: a walk over the rows behind it begins there. */
export async function treeStart(db: TreeDatabase, size: number): Promise<TreeStart> {
  const tree = await currentTree(db)
  return { size, edge: await readEdge(tileReader(db, tree?.tree ?? 0), size) }
}

export type StoredKey = Selectable<DatabaseSchema['audit_keys']>

export const treeKeysOf = (db: TreeDatabase, tree: number): Promise<readonly StoredKey[]> =>
  db
    .selectFrom('audit_keys')
    .selectAll()
    .where('tree', '=', tree)
    .orderBy('created_at', 'desc')
    .orderBy('id')
    .execute()

export function beginTree(
  db: TreeDatabase,
  { tree, key }: { readonly tree: StoredTree; readonly key: StoredKey },
): readonly LedgerStatement[] {
  const begin = db.insertInto('audit_trees').values(tree)
  return [statementOf(begin.compile(), 1), statementOf(db.insertInto('audit_keys').values(key).compile(), 1)]
}

/**
 * Gives a tree that has just begun the archived leaves of the one before it: what their tiles were made of is
 * gone. `signatures`: of the checkpoint that ends with them.
 */
export async function continueTree(
  db: TreeDatabase,
  before: number,
  { tree, size, place, begun_at }: StoredTree,
  sign: (root: Buffer) => readonly string[],
): Promise<readonly LedgerStatement[]> {
  const [edge, read] = [edgeOf(size), tileReader(db, before)]
  const row = { tree, size, place, signed_at: begun_at }
  const root = rootOf(await readEdge(read, size))
  const tiles = edge.flatMap(({ level, n, width }) => {
    const of = db.selectFrom('audit_tiles').where('tree', '=', before).where('level', '=', level)
    const copy = (hashes: RawBuilder<Uint8Array>) =>
      of.select([sql.lit(tree).as('tree'), 'level', 'n', hashes.as('hashes')])
    const whole = copy(sql`hashes`).where('n', '<', n)
    const part = copy(sql`substr(hashes, 1, ${sql.lit(width * HASH_BYTES)})`).where('n', '=', n)
    return level === 0 ? [] : width === 0 ? [whole] : [whole, part]
  })
  const checkpoint = { ...row, root: root.toString('base64'), signatures: sign(root).join('\n') }
  return [
    ...tiles.map((some) => {
      const columns = ['tree', 'level', 'n', 'hashes'] as const
      return statementOf(
        db
          .insertInto('audit_tiles')
          .columns([...columns])
          .expression(some)
          .compile(),
      )
    }),
    statementOf(db.insertInto('audit_checkpoints').values(checkpoint).compile(), 1),
    statementOf(
      sql`insert into audit_states select ${tree}, leaf, place, sha256, state, at, stream, seq from audit_states
        where tree = ${before} and leaf = ${size}`.compile(db),
    ),
  ]
}

export function rotateKey(db: TreeDatabase, key: StoredKey, until: number): readonly LedgerStatement[] {
  const retire = db
    .updateTable('audit_keys')
    .set({ retired_at: timestamp(until) })
    .where('tree', '=', key.tree)
    .where('retired_at', 'is', null)
  return [statementOf(retire.compile()), statementOf(db.insertInto('audit_keys').values(key).compile(), 1)]
}
