import { type Kysely, sql } from 'kysely'
import type { Migration } from 'kysely/migration'

/**
 * The tree over the rows of the ledger (docs/ledger.md#tree): its tiles, its signed checkpoints with the
 * statements of others, and the keys that sign. `bytes`: the engine's type of bytes.
 */
export const auditTree = (bytes: 'blob' | 'bytea'): Migration => ({
  async up(db: Kysely<unknown>): Promise<void> {
    for (const table of tablesOf(bytes)) await sql.raw(table).execute(db)
  },
})

// `place`: of the last row that is in the tree. `reason`: why there is another one than the first.
const tablesOf = (bytes: string): readonly string[] => [
  `create table audit_trees (
  tree integer primary key not null,
  origin text not null,
  size bigint not null,
  place bigint not null,
  begun_at text not null,
  reason text
)`,
  `create table audit_tiles (
  tree integer not null,
  level integer not null,
  n bigint not null,
  hashes ${bytes} not null,
  primary key (tree, level, n)
)`,
  // `place`: of the last row under it. `signatures`: the lines of the log's keys.
  `create table audit_checkpoints (
  tree integer not null,
  size bigint not null,
  place bigint not null,
  root text not null,
  signed_at text not null,
  signatures text not null,
  primary key (tree, size)
)`,
  'create unique index audit_checkpoints_place on audit_checkpoints (tree, place)',
  `create table audit_cosignatures (
  tree integer not null,
  size bigint not null,
  anchor text not null,
  proof text not null,
  at text not null,
  primary key (tree, size, anchor)
)`,
  `create table audit_anchors (
  tree integer not null,
  anchor text not null,
  size bigint not null,
  at text,
  error text,
  error_at text,
  primary key (tree, anchor)
)`,
  `create table audit_keys (
  id text primary key not null,
  tree integer not null,
  vkey text not null,
  sealed_key text not null,
  created_at text not null,
  retired_at text
)`,
]
