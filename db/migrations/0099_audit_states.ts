import { type Kysely, sql } from 'kysely'
import type { Migration } from 'kysely/migration'

/**
 * The states of the ledger that rows have said (docs/ledger.md#state). `place`: of the last row that made
 * one; `stream` and `seq`: of the row that says it; `state`: its text, deflated (RFC 1950). `bytes`: the
 * engine's type of bytes.
 */
export const auditStates = (bytes: 'blob' | 'bytea'): Migration => ({
  async up(db: Kysely<unknown>): Promise<void> {
    await sql
      .raw(`create table audit_states (
  tree integer not null,
  leaf bigint not null,
  place bigint not null,
  sha256 text not null,
  state ${bytes} not null,
  at text not null,
  stream text not null,
  seq bigint not null,
  primary key (tree, leaf)
)`)
      .execute(db)
  },
})
