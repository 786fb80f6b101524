import { type Kysely, sql } from 'kysely'
import type { Migration } from 'kysely/migration'

/**
 * The segments of the ledger that are archived (docs/ledger.md#segments): the files whose rows the guards let
 * go. `guards`: the engine's statements that keep segments as they were written, and rows that are in none.
 */
export const auditSegments = (guards: readonly string[]): Migration => ({
  async up(db: Kysely<unknown>): Promise<void> {
    for (const statement of [TABLE, PLACES, ...guards]) await sql.raw(statement).execute(db)
  },
})

// `first`, `last`: leaves of the tree. `last_place`: of the last row. `stream`, `seq`: the row that says that it is
// archived.
const TABLE = `create table audit_segments (
  first bigint primary key not null,
  last bigint not null,
  last_place bigint not null,
  sha256 text not null,
  state text not null,
  file text not null,
  bytes bigint not null,
  since text not null,
  until text not null,
  stream text not null,
  seq bigint not null,
  confirmed_at text,
  removed_at text,
  forgotten_at text
)`

const PLACES = 'create unique index audit_segments_place on audit_segments (last_place)'

/** The columns that stay as they were written. */
const WRITTEN_ONCE = 'first, last, last_place, sha256, state, file, bytes, since, until, stream, seq'

/** The event of the guards that refuse to write a segment anew. */
export const SEGMENT_REWRITTEN = `update of ${WRITTEN_ONCE}`

/** The condition under which a new row is no segment behind the others, or no committed row speaks of it. */
export const NO_NEXT_SEGMENT = `new.first <> (select coalesce(max(last) + 1, 0) from audit_segments)
    or new.last < new.first or (new.last + 1) % 256 <> 0
    or coalesce(new.confirmed_at, new.removed_at, new.forgotten_at) is not null
    or not exists (select 1 from audit_checkpoints where size > new.last)
    or not exists (select 1 from audit_log where stream = new.stream and seq = new.seq
      and action = 'ledger.archived' and status = 'success' and detail = '{"file":"' || new.file || '","first":' || new.first
        || ',"last":' || new.last || ',"sha256":"' || new.sha256 || '","state":"' || new.state || '"}')`
