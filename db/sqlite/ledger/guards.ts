import { type Kysely, sql } from 'kysely'
import type { Migration } from 'kysely/migration'

/**
 * SQLite's half of migration 0004: triggers that refuse every statement but the next row of a chain
 * (docs/threats.md#t11). They stop accidents and honest tools. They do NOT stop the owner of the file, who
 * can drop them: the schema check at boot and `sallyport verify` find that.
 */
export const sqliteAuditGuards: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    await refuse('update').execute(db)
    await refuse('delete').execute(db)
    await ONLY_THE_NEXT.execute(db)
  },
  async down(db: Kysely<unknown>): Promise<void> {
    for (const name of ['update', 'delete', 'insert']) {
      await sql`drop trigger ${sql.id(`audit_log_${name}`)}`.execute(db)
    }
  },
}

function refuse(verb: 'update' | 'delete') {
  return sql`create trigger ${sql.id(`audit_log_${verb}`)} before ${sql.raw(verb)} on audit_log
begin
  select raise(abort, 'audit_log is append-only');
end`
}

// INSERT OR REPLACE deletes the row that it replaces without asking the delete trigger unless
// recursive_triggers is on, and it can find that row by (stream, seq), by (stream, prev_hash), or by a rowid
// that the statement names. In a BEFORE INSERT trigger new.rowid is -1 exactly if the statement names
// none.
const ONLY_THE_NEXT = sql`create trigger audit_log_insert before insert on audit_log
when new.rowid <> -1 or case new.seq
    when 1 then new.prev_hash <> '0000000000000000000000000000000000000000000000000000000000000000'
      or exists (select 1 from audit_log where stream = new.stream)
    else (new.seq - 1, new.prev_hash) is not
      (select seq, row_hash from audit_log where stream = new.stream order by seq desc limit 1)
  end
begin
  select raise(abort, 'audit_log takes only the next row of its stream');
end`
