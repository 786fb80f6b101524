import { type Kysely, sql } from 'kysely'
import type { Migration } from 'kysely/migration'
import type { Client } from 'pg'
import { leafVersion, type StoredRow } from '../../ledger/record/leaf.ts'
import { leafSql } from '../../ledger/record/leaf-sql.ts'
import { CHECKPOINTS_OF_COLUMNS, CHECKPOINTS_TRIGGER, NEXT_OF_EITHER_FORM, READS_COLUMNS } from './guards.ts'
import { STREAM_CLASS } from './locks.ts'
import { ADOPT_REMOVAL } from './segments.ts'
import { insertRowsQuery, memberOf, POSTGRES_STORED_COLUMNS, TEXT_COLUMNS } from './table.ts'

// The columns that a row has in place of its leaf. Hashes are bytes: half as long.
const TEXTS = ['principal_type', 'tool', 'model', 'provider', 'dpop_jkt', 'detail', 'version']
const HASHES = ['cert_thumbprint', 'config_digest', 'prev_sha256', 'row_sha256']

/**
 * Has rows say once what they say (docs/decisions/038-rows-without-leaves.md): the columns for that, and a view
 * that makes the leaf of a row that has none. Rows of before stay as they are. Rows are written so only once
 * {@link adoptColumns} has been done: at once here if no gateway of the version before is running.
 */
export const auditRowColumns: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    for (const statement of STATEMENTS) await sql.raw(statement).execute(db)
    await adoptAlone(db, ADOPT)
  },
}

/** Lets rows go that are archived, likewise. */
export const auditRemoval: Migration = { up: (db: Kysely<unknown>) => adoptAlone(db, ADOPT_REMOVAL) }

/** Has triggers look at the tables of all alone, likewise: one that a session makes for itself hides them. */
export const triggerPaths: Migration = { up: (db: Kysely<unknown>) => adoptAlone(db, [FIX_PATHS]) }

async function adoptAlone(db: Kysely<unknown>, statements: readonly string[]): Promise<void> {
  const { rows } = await sql<{ alone: boolean }>`${sql.raw(IS_ALONE)}`.execute(db)
  if (rows[0]?.alone) for (const statement of statements) await sql.raw(statement).execute(db)
}

const json = (column: string): string => `coalesce(to_json(${column})::text, 'null')`
const bytesOf = (column: string): string =>
  column.replace('prev_hash', 'prev_sha256').replace('row_hash', 'row_sha256')
const hex = (column: string): string => `encode(${bytesOf(column)}, 'hex')`

/** The leaf of a row of the table that has none. */
export const LEAF_OF_COLUMNS = leafSql({
  json,
  hash: (column) => `coalesce('"' || ${hex(column)} || '"', 'null')`,
  object: (column) => column,
  stream: json('stream'),
})

// A row of both forms, or of neither, has no leaf that is right.
const LEAF = `case when leaf is null and num_nonnulls(prev_hash, row_hash) = 0 then ${LEAF_OF_COLUMNS}
  when leaf is not null and num_nonnulls(${[...TEXTS, ...HASHES].join(', ')}) = 0 then leaf else 'null' end`

const ofEither = (column: string, of: string, former: string): string =>
  `(case when leaf is null then ${of} else ${former} end) collate "C" as ${column}`

const VIEW = `create or replace view audit_log as select ${POSTGRES_STORED_COLUMNS.slice(0, -3).join(', ')},
  ${['prev_hash', 'row_hash'].map((name) => ofEither(name, hex(name), name)).join(', ')},
  (${LEAF}) collate "C" as leaf,
  ${TEXT_COLUMNS.map((name) =>
    ofEither(name, HASHES.includes(name) ? hex(name) : name, `(${memberOf(name)})::text`),
  ).join(',\n  ')}, place
from audit_rows`

const STATEMENTS = [
  `alter table audit_rows ${[
    ...TEXTS.map((name) => `add column ${name} text collate "C"`),
    ...HASHES.map((name) => `add column ${name} bytea`),
    ...['prev_hash', 'row_hash', 'leaf'].map((name) => `alter column ${name} drop not null`),
    'drop constraint audit_rows_leaf_check',
    // They hold of every row there is: nothing to look through.
    ...['leaf', 'detail'].map(
      (name) =>
        `add constraint audit_rows_${name}_check check (${name} is null or ${name}::json is not null) not valid`,
    ),
  ].join(', ')}`,
  VIEW,
]

// A gateway of the version before would read a row without a leaf as one without bytes: it must not be there, and
// cannot come back, because it knows another guard. One that looked at the guard just before cannot sign a tree.
const IS_ALONE = `select not exists (select from pg_locks where locktype = 'advisory' and classid = ${STREAM_CLASS}
    and objsubid = 2 and database = (select oid from pg_database where datname = current_database()))
  and not exists (select from pg_stat_activity where datname = current_database()
    and application_name = 'sallyport presence') as alone`

const ADOPT = [
  `create or replace function audit_rows_only_the_next() returns trigger language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$${NEXT_OF_EITHER_FORM}$$`,
  `create or replace function audit_checkpoints_of_columns() returns trigger language plpgsql as $$${CHECKPOINTS_OF_COLUMNS}$$`,
  `create or replace trigger ${CHECKPOINTS_TRIGGER} before insert on audit_checkpoints
for each row execute function audit_checkpoints_of_columns()`,
]

const OF_TRIGGERS = `from pg_proc where pronamespace = current_schema()::regnamespace
  and prorettype = 'trigger'::regtype and (proname like 'audit\\_%' or proname = 'authority_changed')`

const FIX_PATHS = `do $do$ declare name regprocedure; begin
  for name in select oid ${OF_TRIGGERS} loop
    execute format('alter function %s set search_path = %I, pg_temp', name, current_schema());
  end loop;
end $do$`

/** The answer to the wish to store rows in columns. `before`: they are already. `waits`: gateways are running. */
export type ColumnAdoption = 'adopted' | 'before' | 'waits'

/**
 * Has new rows stored in columns, lets archived ones go, and keeps triggers to the tables of all, by the owner of
 * the tables, unless gateways run that may not know it.
 */
export async function adoptColumns(client: Client): Promise<ColumnAdoption> {
  const { rows: adopted } = await client.query(IS_ADOPTED)
  if ((await storesColumns(client)) && adopted.length > 0) return 'before'
  const { rows } = await client.query<{ alone: boolean }>(IS_ALONE)
  if (rows[0]?.alone !== true) return 'waits'
  await client.query(`begin; ${[...ADOPT, ...ADOPT_REMOVAL, FIX_PATHS].join('; ')}; commit`)
  return 'adopted'
}

const IS_ADOPTED = `select from pg_trigger t join pg_proc p on p.oid = t.tgfoid
where t.tgrelid = 'audit_rows'::regclass and t.tgname = 'audit_rows_delete' and p.proname = 'audit_rows_only_archived'
  and not exists (select ${OF_TRIGGERS} and coalesce(array_to_string(proconfig, ' '), '') not like '%search_path=%')`

/**
 * Tells if rows are stored in columns: the guard is the one that takes them, and this role may write them. Lets
 * the session sign trees.
 */
export async function storesColumns(client: Client): Promise<boolean> {
  const { rows } = await client.query<{ stores: boolean }>(STORES, [NEXT_OF_EITHER_FORM])
  return rows[0]?.stores === true
}

const STORES = `select set_config('${READS_COLUMNS}', 'on', false), exists (
  select from pg_trigger t join pg_proc p on p.oid = t.tgfoid
  where t.tgrelid = 'audit_rows'::regclass and t.tgname = 'audit_rows_insert' and p.prosrc = $1) and has_column_privilege('audit_rows', 'row_sha256', 'insert') as stores`

/** The statement that stores rows. `inColumns`: as {@link storesColumns} says. */
export function storeRowsQuery(rows: readonly StoredRow[], inColumns: boolean) {
  if (!inColumns || !rows.every(isOfColumns)) return insertRowsQuery(rows)
  return {
    name: 'audit_rows in columns',
    text: INSERT,
    values: GIVEN.map((name) => rows.map((row) => row[name])),
  }
}

const HEX = /^[0-9a-f]{64}$/

// Another one keeps its leaf.
const isOfColumns = ({ cert_thumbprint: cert, config_digest: config, leaf }: StoredRow): boolean =>
  HEX.test(config) && (cert === null || HEX.test(cert)) && leafVersion(leaf) === 2

const GIVEN = [
  ...(['stream', 'seq', 'recorded_at', 'request_id', 'principal_id', 'action', 'status'] as const),
  ...(['principal_type', 'tool', 'model', 'provider', 'dpop_jkt', 'detail', 'version'] as const),
  ...(['cert_thumbprint', 'config_digest', 'prev_hash', 'row_hash'] as const),
]

const INSERT = `insert into audit_rows (${GIVEN.map(bytesOf).join(', ')})
select ${GIVEN.map((name) => (HASHES.includes(bytesOf(name)) ? `decode(${name}, 'hex')` : name)).join(', ')}
from unnest(${GIVEN.map((name, index) => `$${index + 1}::${name === 'seq' ? 'bigint' : 'text'}[]`).join(', ')})
  as given(${GIVEN.join(', ')})`
