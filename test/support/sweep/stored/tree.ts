import { withRaw } from '../../db/scratch-ledger.ts'
import type { Chooser } from '../edits/edit.ts'
import type { Sealed } from './database.ts'
import { both, type DatabaseEdit, sql } from './editing.ts'

const tile = ({ rows: _ }: Sealed, { below }: Chooser): string =>
  `rowid = (select rowid from audit_tiles limit 1 offset ${below(3)})`
const at = ({ kept }: Sealed, { one }: Chooser): string => `size = ${one(kept)?.size}`
const ROOT = `'${Buffer.alloc(32, 9).toString('base64')}'`

export const TREE_OF_DATABASE: readonly DatabaseEdit[] = [
  {
    name: 'tree: a bit of a tile',
    work: (file, log, choose) => {
      withRaw(file, (db) => {
        const where = tile(log, choose)
        const hashes = Buffer.from(
          db.prepare<[], Buffer>(`select hashes from audit_tiles where ${where}`).pluck().get() ?? '',
        )
        const place = choose.below(hashes.length)
        hashes.writeUInt8(hashes.readUInt8(place) ^ (1 << choose.below(8)), place)
        db.prepare(`update audit_tiles set hashes = ? where ${where}`).run(hashes)
      })
      return both(3)
    },
  },
  sql(
    'tree: a tile cut short',
    (log, choose) =>
      `update audit_tiles set hashes = substr(hashes, 1, length(hashes) - ${1 + choose.below(32)}) where ${tile(log, choose)}`,
    both(3),
  ),
  sql(
    'tree: a tile of nothing',
    (log, choose) => `update audit_tiles set hashes = x'' where ${tile(log, choose)}`,
    both(3),
  ),
  sql(
    'tree: a tile that is a text',
    (log, choose) => `update audit_tiles set hashes = 'x' where ${tile(log, choose)}`,
    both(3),
  ),
  sql(
    'tree: a tile that is a number',
    (log, choose) => `update audit_tiles set hashes = 5 where ${tile(log, choose)}`,
    both(3),
  ),
  sql(
    'tree: a full tile that goes on',
    `update audit_tiles set hashes = hashes || x'00' where level = 0 and n = 0`,
    both(3),
  ),
  sql('tree: a tile gone', (log, choose) => `delete from audit_tiles where ${tile(log, choose)}`, both(3)),
  sql('tree: all tiles gone', 'delete from audit_tiles', both(3)),
  sql(
    'tree: two tiles swapped',
    'update audit_tiles set n = 9 where level = 0 and n = 0; update audit_tiles set n = 0 where level = 0 and n = 1; update audit_tiles set n = 1 where n = 9',
    both(3),
  ),
  sql('tree: a tile at another level', 'update audit_tiles set level = 2 where level = 1', both(3)),
  sql(
    'tree: a tile of another tree',
    (log, choose) => `update audit_tiles set tree = 9 where ${tile(log, choose)}`,
    both(3),
  ),
  sql(
    'tree: another root',
    (log, choose) => `update audit_checkpoints set root = ${ROOT} where ${at(log, choose)}`,
    both(3),
  ),
  ...["'x'", "''", '7', "x'00'", `'${'A'.repeat(44)}'`].map((root) =>
    sql(
      `tree: a root that is none, ${root}`,
      (log, choose) => `update audit_checkpoints set root = ${root} where ${at(log, choose)}`,
      both(3),
    ),
  ),
  ...[
    "'x'",
    "''",
    '7',
    "x'00'",
    "'— a AAAAAAAA'",
    "'— ' || char(10)",
    'signatures || char(10) || signatures',
  ].map((text) =>
    sql(
      `tree: signatures that are none, ${text}`,
      (log, choose) => `update audit_checkpoints set signatures = ${text} where ${at(log, choose)}`,
      both(3),
    ),
  ),
  sql(
    'tree: a checkpoint of one row more',
    (log, choose) => `update audit_checkpoints set size = size + 1 where ${at(log, choose)}`,
    both(3),
  ),
  sql(
    'tree: a checkpoint of one row less',
    (log, choose) => `update audit_checkpoints set size = size - 1 where ${at(log, choose)}`,
    both(3),
  ),
  sql(
    'tree: a checkpoint of no whole number of rows',
    (log, choose) => `update audit_checkpoints set size = size + 0.5 where ${at(log, choose)}`,
    both(3),
  ),
  sql(
    'tree: a checkpoint below nothing',
    (log, choose) => `update audit_checkpoints set size = -size where ${at(log, choose)}`,
    both(3),
  ),
  sql(
    'tree: a checkpoint of a text',
    (log, choose) => `update audit_checkpoints set size = 'x' where ${at(log, choose)}`,
    both(3),
  ),
  sql(
    'tree: a checkpoint that was never signed',
    (log, choose) =>
      `insert into audit_checkpoints select tree, size - 1, place - 1, ${ROOT}, signed_at, signatures from audit_checkpoints where ${at(log, choose)}`,
    both(3),
  ),
  sql(
    'tree: checkpoints of each other',
    (log) => {
      const [a, b] = log.kept
      return `update audit_checkpoints set place = -1, size = -1 where size = ${a?.size}; update audit_checkpoints set size = ${a?.size} where size = ${b?.size}; update audit_checkpoints set size = ${b?.size} where size = -1`
    },
    both(3),
  ),
  sql(
    'tree: a checkpoint gone, as another is there behind it',
    ({ kept }) => `delete from audit_checkpoints where size = ${kept[0]?.size}`,
    both(0),
  ),
  sql('tree: all checkpoints gone', 'delete from audit_checkpoints', both(3)),
  sql('tree: set back', 'update audit_trees set size = size - 1', both(3)),
  sql('tree: its place set back', 'update audit_trees set place = place - 1', both(3)),
  sql('tree: its place put ahead', 'update audit_trees set place = place + 1', both(3)),
  sql(
    'tree: without its newest checkpoint',
    'delete from audit_checkpoints where size = (select max(size) from audit_checkpoints)',
    both(3),
  ),
  sql(
    'tree: no tree',
    'delete from audit_trees; delete from audit_tiles; delete from audit_checkpoints; delete from audit_keys',
    both(0),
  ),
  sql('tree: no keys', 'delete from audit_keys', both(3)),
  sql('tree: a key that is none', "update audit_keys set vkey = 'x'", both(3)),
  sql('tree: a key of another type', 'update audit_keys set vkey = 5', both(3)),
  sql('tree: another origin', "update audit_trees set origin = 'example.org/other/audit'", both(3)),
  sql(
    'tree: an origin of several lines',
    "update audit_trees set origin = origin || char(10) || '9'",
    both(3),
  ),
  sql('tree: an origin of another type', 'update audit_trees set origin = 5', both(3)),
  sql(
    'tree: a cosignature that is none',
    (log, choose) => `update audit_cosignatures set proof = '— w.example AAAAAAAA' where ${at(log, choose)}`,
    { alone: 0, held: 'any' },
  ),
  sql(
    'tree: a cosignature of another kind',
    (log, choose) => `update audit_cosignatures set proof = '— x' where ${at(log, choose)}`,
    both(3),
  ),
  sql('tree: no cosignature', 'delete from audit_cosignatures', both(0)),
  sql(
    'tree: a second tree, of another log',
    "insert into audit_trees select 2, 'example.org/acme/audit-2', 0, 0, begun_at, 'x' from audit_trees",
    { alone: 0, held: 3 },
  ),
]
