import { type Kysely, sql } from 'kysely'
import type { Migration } from 'kysely/migration'
import { LEAF_COLUMNS, SELECT_ALL_COLUMNS, SELECT_FROM_LEAVES, SQLITE_STORED_COLUMNS } from './columns.ts'

/**
 * SQLite's form of the ledger since 0051 (docs/decisions/023-a-row-is-its-leaf.md): the table `audit_rows`
 * holds each leaf once, with only the columns that an index or the writer needs; the view `audit_log` has the
 * columns of docs/ledger.md#row, read from the leaf.
 *
 * Copies the rows that are not copied yet (db/sqlite/ledger/form/rebuild.ts has done so, and verified them);
 * throws if the copy is not the ledger, row for row.
 */
export const auditRows: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    await sql.raw(CREATE_COPY_TABLE).execute(db)
    await sql.raw(COPY_THE_REST).execute(db)
    await assertCopied(db)
    await sql`drop table audit_log`.execute(db)
    await sql`alter table ${sql.id(COPY_TABLE)} rename to audit_rows`.execute(db)
    for (const part of [...INDEXES, refuse('update'), refuse('delete'), ONLY_THE_NEXT, VIEW])
      await part.execute(db)
  },
}

/** The table that the rows of the former form are copied into. It has another name until it is whole. */
export const COPY_TABLE = 'ledger_copy'

// The leaf stands last: a reader of another column reads no page on which only a long leaf goes on.
export const CREATE_COPY_TABLE = `create table if not exists ${COPY_TABLE} (
  seq integer primary key,
  recorded_at text not null,
  request_id text,
  principal_id text,
  action text not null,
  status text not null,
  row_hash text not null,
  leaf text not null
)`

const columns = (
  of: string,
  names: readonly string[] = [...SQLITE_STORED_COLUMNS, ...LEAF_COLUMNS],
): string => names.map((name) => `${of}.${name}`).join(', ')

const COPY_THE_REST = `insert into ${COPY_TABLE} select ${columns('audit_log', SQLITE_STORED_COLUMNS)} from audit_log
where stream = 'main' and seq > (select coalesce(max(seq), 0) from ${COPY_TABLE}) order by seq`

// Every column as the view will have it. The seqs of a chain have no gap, so a copy that has all of its rows
// and no more ends at their number.
const COMPARE = `with copy as (select ${SQLITE_STORED_COLUMNS.join(', ')}, ${LEAF_COLUMNS.map((name) => `json_extract(leaf, '$.${name}') as ${name}`).join(', ')} from ${COPY_TABLE})
select count(*) as rows,
  coalesce(sum(stream <> 'main' or (${columns('audit_log')}) is not (${columns('copy')})), 0) as other,
  (select coalesce(max(seq), 0) from ${COPY_TABLE}) as last, (select coalesce(min(seq), 1) from ${COPY_TABLE}) as first
from audit_log not indexed left join copy on copy.seq = audit_log.seq`

interface CopyComparison {
  readonly rows: number
  readonly other: number
  readonly first: number
  readonly last: number
}

async function assertCopied(db: Kysely<unknown>): Promise<void> {
  const [found] = (await sql.raw<CopyComparison>(COMPARE).execute(db)).rows
  if (found?.other === 0 && found.first === 1 && found.last === found.rows) return
  throw new Error(
    `the copy of the audit ledger differs from it (${JSON.stringify(found)}): remove the table ${COPY_TABLE} and start again. The ledger was not changed`,
  )
}

// The request ids of one time begin alike, so a row of a request goes to the end of its index. The actions of
// nearly all rows have none: their rows are found by time (db/ledger/read/find.ts).
const INDEXES = [
  sql`create index audit_rows_request on audit_rows (request_id, status)`,
  sql`create index audit_rows_time on audit_rows (recorded_at)`,
  sql`create index audit_rows_principal on audit_rows (principal_id, recorded_at)`,
  sql`create index audit_rows_action on audit_rows (action, recorded_at)
where action not in ('egress_llm_chat', 'mcp_tools_call', 'mcp_tools_list')`,
]

function refuse(verb: 'update' | 'delete') {
  return sql`create trigger ${sql.id(`audit_rows_${verb}`)} before ${sql.raw(verb)} on audit_rows
begin
  select raise(abort, 'audit_log is append-only');
end`
}

// INSERT OR REPLACE deletes the row that it replaces without asking the delete trigger unless
// recursive_triggers is on. It finds that row by seq alone, and a seq that is there is not the next one. A
// seq that the statement leaves out is -1 here.
const ONLY_THE_NEXT = sql`create trigger audit_rows_insert before insert on audit_rows
when case new.seq
    when 1 then exists (select 1 from audit_rows)
      or instr(new.leaf, '"prev_hash":"0000000000000000000000000000000000000000000000000000000000000000"') = 0
    else not exists (
      select 1 from (select seq, row_hash from audit_rows order by seq desc limit 1)
      where seq = new.seq - 1 and instr(new.leaf, '"prev_hash":"' || row_hash || '"') > 0)
  end
begin
  select raise(abort, 'audit_log takes only the next row of its stream');
end`

const VIEW = sql.raw(`create view audit_log as ${SELECT_FROM_LEAVES}`)

/**
 * Has rows say once what they say (docs/decisions/023-a-row-is-its-leaf.md): a row has all columns, and no leaf;
 * the view makes it. Rows of before stay as they are.
 */
export const auditColumns: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    const { rows } = await sql<{ name: string }>`select name from pragma_table_info('audit_rows')`.execute(db)
    const has = new Set(rows.map(({ name }) => name))
    for (const name of LEAF_COLUMNS)
      if (!has.has(name)) await sql`alter table audit_rows add column ${sql.id(name)} text`.execute(db)
    await sql`drop trigger audit_rows_insert`.execute(db)
    await sql`drop view audit_log`.execute(db)
    await sql.raw(ONLY_THE_NEXT_OF_BOTH).execute(db)
    await sql.raw(`create view audit_log as ${SELECT_ALL_COLUMNS}`).execute(db)
  },
}

const namesParent = (hash: string): string =>
  `iif(new.leaf = '', new.prev_hash is ${hash}, instr(new.leaf, '"prev_hash":"' || ${hash} || '"') > 0)`

const ONLY_THE_NEXT_OF_BOTH = `create trigger audit_rows_insert before insert on audit_rows
when case new.seq
    when 1 then exists (select 1 from audit_rows) or not ${namesParent(`'${'0'.repeat(64)}'`)}
    else not exists (
      select 1 from (select seq, row_hash from audit_rows order by seq desc limit 1)
      where seq = new.seq - 1 and ${namesParent('row_hash')})
  end
begin
  select raise(abort, 'audit_log takes only the next row of its stream');
end`
