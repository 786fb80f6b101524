import { type Kysely, sql } from 'kysely'
import type { Migration } from 'kysely/migration'

/**
 * PostgreSQL's form of the ledger: like SQLite's (db/sqlite/ledger/form/table.ts), each leaf once with the
 * columns that an index or a constraint needs, and a view `audit_log` with the columns of docs/ledger.md#row.
 * There are many streams here, and two rows with one parent cannot be stored, whoever writes them.
 */
export const auditLog: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    for (const statement of [STREAMS, TABLE, ...INDEXES, VIEW]) await sql.raw(statement).execute(db)
  },
}

// `recovered`: the decisions whose outcome somebody else has written. `closed_at`: none is left.
const STREAMS = `create table audit_streams (
  stream text collate "C" primary key,
  replica text collate "C" not null,
  opened_at text collate "C" not null,
  recovered bigint not null default 0,
  closed_at text collate "C"
)`

// A leaf that is no JSON cannot be stored: it would keep the others from being read through the view.
const TABLE = `create table audit_rows (
  stream text collate "C" not null,
  seq bigint not null,
  recorded_at text collate "C" not null,
  request_id text collate "C",
  principal_id text collate "C",
  action text collate "C" not null,
  status text collate "C" not null,
  prev_hash text collate "C" not null,
  row_hash text collate "C" not null,
  leaf text collate "C" not null check (leaf::json is not null),
  constraint audit_rows_pk primary key (stream, seq),
  constraint audit_rows_parent unique (stream, prev_hash)
)`

const INDEXES = [
  'create index audit_rows_request on audit_rows (request_id, status)',
  'create index audit_rows_time on audit_rows (recorded_at)',
  'create index audit_rows_principal on audit_rows (principal_id, recorded_at)',
  `create index audit_rows_action on audit_rows (action, recorded_at)
where action not in ('egress_llm_chat', 'mcp_tools_call', 'mcp_tools_list')`,
]

/** The columns that a writer stores. Every other one is read from the leaf, `place` aside (places.ts). */
export const POSTGRES_STORED_COLUMNS = [
  ...(['stream', 'seq', 'recorded_at', 'request_id', 'principal_id', 'action', 'status'] as const),
  ...(['prev_hash', 'row_hash', 'leaf'] as const),
]

/** The members of a leaf that are texts. Of type json, not jsonb, which would not keep a leaf's bytes. */
const TEXTS = [
  ...['principal_type', 'tool', 'model', 'provider', 'cert_thumbprint', 'dpop_jkt'],
  ...['config_digest', 'version'],
]

const memberOf = (name: string, arrow: string): string =>
  `(leaf::json ${arrow} '${name}')::text collate "C" as ${name}`

/** The columns of the view that are read from the leaf. */
export const TEXT_COLUMNS = [...TEXTS.map((name) => memberOf(name, '->>')), memberOf('detail', '->')]

const VIEW = `create view audit_log as select ${POSTGRES_STORED_COLUMNS.join(', ')},
  ${TEXT_COLUMNS.join(',\n  ')}
from audit_rows`
