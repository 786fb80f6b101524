import { type Kysely, sql } from 'kysely'
import type { Migration } from 'kysely/migration'
import type { StoredRow } from '../../ledger/record/leaf.ts'
import { GUARD_FUNCTIONS } from './guards.ts'

/**
 * PostgreSQL's form of the ledger: like SQLite's (db/sqlite/ledger/form/table.ts), each leaf once with the
 * columns that an index or a constraint needs, and a view `audit_log` with the columns of docs/ledger.md#row.
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

export const POSTGRES_STORED_COLUMNS = [
  ...(['stream', 'seq', 'recorded_at', 'request_id', 'principal_id', 'action', 'status'] as const),
  ...(['prev_hash', 'row_hash', 'leaf'] as const),
]

/** The members of a leaf that are texts. Of type json, not jsonb, which would not keep a leaf's bytes. */
export const TEXT_COLUMNS = [
  ...['principal_type', 'tool', 'model', 'provider', 'cert_thumbprint', 'dpop_jkt'],
  ...['config_digest', 'version', 'detail'],
]

/** SQL of a member that is read from the leaf. */
export const memberOf = (name: string): string => `leaf::json ${name === 'detail' ? '->' : '->>'} '${name}'`

const MEMBERS = TEXT_COLUMNS.map((name) => `(${memberOf(name)})::text collate "C" as ${name}`)

const VIEW = `create view audit_log as select ${POSTGRES_STORED_COLUMNS.join(', ')},
  ${MEMBERS.join(',\n  ')}
from audit_rows`

export type PostgresLedgerRow = Pick<StoredRow, (typeof POSTGRES_STORED_COLUMNS)[number]>

export const insertRowsQuery = (rows: readonly PostgresLedgerRow[]) => ({
  name: 'audit_rows',
  text: INSERT,
  values: POSTGRES_STORED_COLUMNS.map((name) => rows.map((row) => row[name])),
})

const INSERT = `insert into audit_rows (${POSTGRES_STORED_COLUMNS.join(', ')}) select * from unnest(
  ${POSTGRES_STORED_COLUMNS.map((name, index) => `$${index + 1}::${name === 'seq' ? 'bigint' : 'text'}[]`).join(', ')})`

/**
 * Gives each row its `place`: the order of the rows of all streams (docs/ledger.md#places). The number is
 * given by the database, while the row's transaction holds the authority lock (locks.ts): so between a change
 * and a decision it says which of the two was first. A role that may insert into the other columns alone
 * cannot choose it (deploy/postgres). Rows from before get theirs as they lie in the table.
 */
export const auditPlaces: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    for (const statement of STATEMENTS) await sql.raw(statement).execute(db)
  },
}

const STATEMENTS = [
  'alter table audit_rows add column place bigint generated always as identity',
  'create unique index audit_rows_place on audit_rows (place)',
  `create or replace view audit_log as select ${POSTGRES_STORED_COLUMNS.join(', ')},
  ${MEMBERS.join(',\n  ')}, place
from audit_rows`,
  // From now on each row must also have a later place than the one before it in its stream.
  `create or replace function audit_rows_only_the_next() returns trigger language plpgsql as $$${GUARD_FUNCTIONS.audit_rows_only_the_next}$$`,
]

/**
 * Drops what said once more that two rows cannot have one parent: the key and the guard of the next row say so
 * (guards.ts). Its index held random texts, so each row touched pages of its own there.
 */
export const auditParents: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    await sql`alter table audit_rows drop constraint audit_rows_parent`.execute(db)
  },
}
