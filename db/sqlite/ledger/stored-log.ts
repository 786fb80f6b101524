import type SQLite from 'better-sqlite3'
import { checkpointText } from '../../ledger/tree/checkpoint.ts'
import type { StoredLog } from '../../ledger/tree/inspect.ts'
import { noteOf, readableKeys } from '../../ledger/tree/note.ts'
import { stampsBySize } from '../../ledger/tree/stamps.ts'
import { parseSignedCheckpoint, type SignedCheckpoint } from '../../ledger/tree/trusted.ts'

interface TreeRow {
  readonly tree: number
  readonly origin: string
}

interface CheckpointRow {
  readonly size: number
  readonly root: string
  readonly signatures: string
}

/** Checkpoints that are read at once. */
const PAGE = 1_000

export function sqliteStoredLog(db: SQLite.Database): StoredLog | null {
  if (!db.prepare("select 1 from sqlite_schema where name = 'audit_trees'").get()) return null
  const tree = db
    .prepare<[], TreeRow>('select tree, origin from audit_trees order by tree desc limit 1')
    .get()
  if (!tree) return null
  const newest = db
    .prepare<[number], number>('select max(size) from audit_checkpoints where tree = ?')
    .pluck()
    .get(tree.tree)
  const keys = db
    .prepare<[number], string>('select vkey from audit_keys where tree = ?')
    .pluck()
    .all(tree.tree)
  const tile = db
    .prepare<[number, number, number], Buffer>(
      'select hashes from audit_tiles where tree = ? and level = ? and n = ?',
    )
    .pluck()
  return {
    origin: tree.origin,
    keys: readableKeys(keys),
    checkpoints: checkpoints(db, tree, newest ?? 0),
    tiles: { size: newest ?? 0, read: ({ level, n }) => tile.get(tree.tree, level, n) ?? null },
  }
}

/** Checkpoints up to a size: those signed while rows are read are later. */
function* checkpoints(
  db: SQLite.Database,
  { tree, origin }: TreeRow,
  newest: number,
): Generator<SignedCheckpoint> {
  const page = db.prepare<[number, number, number], CheckpointRow>(
    `select size, root, signatures from audit_checkpoints
     where tree = ? and size > ? and size <= ? order by size limit ${PAGE}`,
  )
  const cosigned = db
    .prepare<[number, number], string>(
      "select proof from audit_cosignatures where tree = ? and size = ? and proof like '— %' order by anchor",
    )
    .pluck()
  const stamped = db.prepare<[number, number, number], { readonly size: number; readonly proof: string }>(
    `select size, proof from audit_cosignatures
     where tree = ? and size > ? and size <= ? and anchor like 'timestamp:%' order by size, anchor`,
  )
  let after = Number.MIN_SAFE_INTEGER
  for (;;) {
    const rows = page.all(tree, after, newest)
    const stamps = stampsBySize(stamped.all(tree, after, rows.at(-1)?.size ?? after))
    for (const { size, root, signatures } of rows) {
      const text = checkpointText({ origin, size, root: Buffer.from(root, 'base64') })
      const note = noteOf(text, [...String(signatures).split('\n'), ...cosigned.all(tree, size)])
      yield { ...parseSignedCheckpoint(note), stamps: stamps.get(size) ?? [] }
      after = size
    }
    if (rows.length < PAGE) return
  }
}
