import type { Kysely } from 'kysely'
import type { StoredLog } from '../../ledger/tree/inspect.ts'
import { readableKeys } from '../../ledger/tree/note.ts'
import { stampsBetween, stampsBySize } from '../../ledger/tree/stamps.ts'
import {
  currentTree,
  newestCheckpoint,
  noteOfCheckpoint,
  type StoredTree,
  tileReader,
  treeKeysOf,
} from '../../ledger/tree/store.ts'
import { parseSignedCheckpoint, type SignedCheckpoint } from '../../ledger/tree/trusted.ts'
import type { DatabaseSchema } from '../../schema.ts'

type StoredLogDatabase = Kysely<DatabaseSchema>

/** Checkpoints that are read at once. */
const PAGE = 1_000

/** The tree of a database as it is now; null if none was begun, or the database is of an earlier version. */
export async function postgresStoredLog(db: StoredLogDatabase): Promise<StoredLog | null> {
  const tables = await db.introspection.getTables()
  const tree = tables.some(({ name }) => name === 'audit_trees') ? await currentTree(db) : undefined
  if (!tree) return null
  const newest = (await newestCheckpoint(db, tree.tree))?.size ?? 0
  const keys = await treeKeysOf(db, tree.tree)
  const read = tileReader(db, tree.tree)
  return {
    origin: tree.origin,
    keys: readableKeys(keys.map(({ vkey }) => vkey)),
    checkpoints: checkpoints(db, tree, newest),
    // Width 0: as many hashes as there are.
    tiles: { size: newest, read: (place) => read(place, 0) },
  }
}

async function* checkpoints(
  db: StoredLogDatabase,
  tree: StoredTree,
  newest: number,
): AsyncGenerator<SignedCheckpoint> {
  let after = Number.MIN_SAFE_INTEGER
  for (;;) {
    const rows = await db
      .selectFrom('audit_checkpoints')
      .selectAll()
      .where('tree', '=', tree.tree)
      .where('size', '>', after)
      .where('size', '<=', newest)
      .orderBy('size')
      .limit(PAGE)
      .execute()
    const until = rows.at(-1)?.size ?? after
    const stamps = stampsBySize(await stampsBetween(db, tree.tree, { after, until }))
    for (const row of rows) {
      const signed = parseSignedCheckpoint(await noteOfCheckpoint(db, tree, row))
      yield { ...signed, stamps: stamps.get(row.size) ?? [] }
      after = row.size
    }
    if (rows.length < PAGE) return
  }
}
