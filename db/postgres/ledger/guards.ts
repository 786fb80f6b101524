import { type Kysely, sql } from 'kysely'
import type { Migration } from 'kysely/migration'

/**
 * PostgreSQL's half of migration 0004: triggers that refuse every statement but the next rows of a chain
 * (docs/threats.md#t12), also for a session that replays a replica's changes. They stop accidents and honest
 * tools. They do NOT stop the owner of the table, who can drop them: production gives the service a role that
 * owns nothing (deploy/postgres), and the schema check at boot and `sallyport verify` find what is missing.
 */
export const postgresAuditGuards: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    for (const statement of GUARDS) await sql.raw(statement).execute(db)
  },
}

export const GUARD_FUNCTIONS: Readonly<Record<string, string>> = {
  audit_rows_refuse: `
begin
  raise exception 'audit_log is append-only' using errcode = 'raise_exception';
end `,
  // Once per statement, over all that it adds: a batch is one. By induction a row that has its predecessor
  // has all. Planned again each time: a plan that was made for an empty table reads the whole stream for each
  // row ever after.
  audit_rows_only_the_next: `
declare
  wrong boolean;
begin
  execute $q$
    select exists (
      select from added
      where case added.seq
          when 1 then added.prev_hash <> repeat('0', 64)
          else added.prev_hash is distinct from (
            select parent.row_hash from audit_rows parent
            where parent.stream = added.stream and parent.seq = added.seq - 1)
        end
        or strpos(added.leaf, '"prev_hash":"' || added.prev_hash || '"') = 0)
  $q$ into wrong;
  if wrong then
    raise exception 'audit_log takes only the next row of its stream' using errcode = 'raise_exception';
  end if;
  return null;
end `,
}

/**
 * The guard of the next row since rows are stored in columns too (columns.ts). Each row is compared with the one
 * before it in the statement, and the first one with the one that is stored. Planned once: never to read the
 * whole table, whose rows a plan for an empty one would not count.
 */
export const NEXT_OF_EITHER_FORM = `
begin
  if exists (
    select from (
      select added.*, coalesce(prev_hash, encode(prev_sha256, 'hex')) as parent, lag(seq) over chain as seq_above,
        lag(coalesce(row_hash, encode(row_sha256, 'hex'))) over chain as above
      from added window chain as (partition by stream order by seq)
    ) as next
    where case when seq = 1 then parent is distinct from repeat('0', 64)
        when seq_above = seq - 1 then parent is distinct from above
        else parent is null or parent is distinct from (
          select coalesce(stored.row_hash, encode(stored.row_sha256, 'hex')) from audit_rows stored
          where stored.stream = next.stream and stored.seq = next.seq - 1)
      end
      or case when leaf is null
        then num_nonnulls(prev_hash, row_hash) > 0 or num_nulls(config_digest, detail, version) > 0
          or octet_length(prev_sha256) <> 32 or octet_length(row_sha256) is distinct from 32
        else num_nulls(prev_hash, row_hash) > 0 or strpos(leaf, '"prev_hash":"' || prev_hash || '"') = 0
          or num_nonnulls(principal_type, tool, model, provider, dpop_jkt, detail, version,
            cert_thumbprint, config_digest, prev_sha256, row_sha256) > 0
      end
  ) then
    raise exception 'audit_log takes only the next row of its stream' using errcode = 'raise_exception';
  end if;
  return null;
end `

/** The setting by which a session says that it reads rows that are stored in columns. */
export const READS_COLUMNS = 'sallyport.reads_columns'

export const CHECKPOINTS_TRIGGER = 'audit_checkpoints_insert'

/** The guard of checkpoints, wherever rows are stored in columns. */
export const CHECKPOINTS_OF_COLUMNS = `
begin
  if coalesce(current_setting('${READS_COLUMNS}', true), '') <> 'on' then
    raise exception 'a gateway of an earlier version cannot read these rows' using errcode = 'raise_exception';
  end if;
  return new;
end `

export const GUARD_TRIGGERS: Readonly<Record<string, keyof typeof GUARD_FUNCTIONS>> = {
  audit_rows_update: 'audit_rows_refuse',
  audit_rows_delete: 'audit_rows_refuse',
  audit_rows_truncate: 'audit_rows_refuse',
  audit_rows_insert: 'audit_rows_only_the_next',
}

const GUARDS = [
  ...Object.entries(GUARD_FUNCTIONS).map(
    ([name, body]) => `create function ${name}() returns trigger language plpgsql as $$${body}$$`,
  ),
  'create trigger audit_rows_update before update on audit_rows for each row execute function audit_rows_refuse()',
  'create trigger audit_rows_delete before delete on audit_rows for each row execute function audit_rows_refuse()',
  'create trigger audit_rows_truncate before truncate on audit_rows for each statement execute function audit_rows_refuse()',
  `create trigger audit_rows_insert after insert on audit_rows referencing new table as added
for each statement execute function audit_rows_only_the_next()`,
  ...Object.keys(GUARD_TRIGGERS).map((name) => `alter table audit_rows enable always trigger ${name}`),
]
