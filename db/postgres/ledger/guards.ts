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
