import { type Kysely, sql } from 'kysely'
import type { Migration } from 'kysely/migration'
import { GUARD_FUNCTIONS } from './guards.ts'
import { POSTGRES_STORED_COLUMNS, TEXT_COLUMNS } from './table.ts'

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
  ${TEXT_COLUMNS.join(',\n  ')}, place
from audit_rows`,
  // From now on each row must also have a later place than the one before it in its stream.
  `create or replace function audit_rows_only_the_next() returns trigger language plpgsql as $$${GUARD_FUNCTIONS.audit_rows_only_the_next}$$`,
]
