import { auditSegments, NO_NEXT_SEGMENT, SEGMENT_REWRITTEN } from '../../migrations/0098_audit_segments.ts'

// Once per statement. The newest row of a stream stays: its next row, and whoever comes back to it, need it.
const ONLY_ARCHIVED_ROWS = `
begin
  if exists (select from gone where place > (select coalesce(max(last_place), 0) from audit_segments))
    or exists (
      select from (select stream, max(seq) as seq from gone group by stream) as newest
      where not exists (select from audit_rows kept where kept.stream = newest.stream and kept.seq > newest.seq))
  then
    raise exception 'audit_log is append-only' using errcode = 'raise_exception';
  end if;
  return null;
end `

// The leaves up to a place are counted from the last place whose leaf is known.
const ONLY_THE_NEXT_SEGMENT = `
declare
  known record;
begin
  select * into known from (
    select last + 1 as size, last_place as place from audit_segments
    union all select size, place from audit_checkpoints where size <= new.last + 1
    union all select 0, 0 order by size desc limit 1) as start;
  if ${NO_NEXT_SEGMENT}
    or not exists (select from audit_rows where place = new.last_place)
    or (select count(*) from audit_rows where place > known.place and place <= new.last_place) <> new.last + 1 - known.size
  then
    raise exception 'audit_segments takes only the next segment that a row says is archived' using errcode = 'raise_exception';
  end if;
  return new;
end `

const REFUSE_SEGMENT = `
begin
  raise exception 'audit_segments takes only the next segment that a row says is archived' using errcode = 'raise_exception';
end `

/** The guards of segments, by the names of their triggers. */
export const SEGMENT_GUARDS: Readonly<Record<string, readonly [event: string, by: string, body: string]>> = {
  audit_segments_insert: ['before insert', 'audit_rows_next_segment', ONLY_THE_NEXT_SEGMENT],
  audit_segments_update: [`before ${SEGMENT_REWRITTEN}`, 'audit_rows_refuse_segment', REFUSE_SEGMENT],
  audit_segments_delete: ['before delete', 'audit_rows_refuse_segment', REFUSE_SEGMENT],
  audit_segments_truncate: ['before truncate', 'audit_rows_refuse_segment', REFUSE_SEGMENT],
}

/** The guard of rows that are removed, as a schema is asked for it. */
export const ARCHIVED_ROWS_GUARD = `${ONLY_ARCHIVED_ROWS} plan_cache_mode=force_generic_plan enable_seqscan=off`

/**
 * The statements that let rows go that are archived. Not while a gateway of the version before runs: it takes
 * another guard than its own for a damaged one.
 */
export const ADOPT_REMOVAL: readonly string[] = [
  `create or replace function audit_rows_only_archived() returns trigger language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$${ONLY_ARCHIVED_ROWS}$$`,
  `create or replace trigger audit_rows_delete after delete on audit_rows referencing old table as gone
for each statement execute function audit_rows_only_archived()`,
  'alter table audit_rows enable always trigger audit_rows_delete',
]

const CREATE = Object.entries(SEGMENT_GUARDS).flatMap(([name, [event, by, body]]) => [
  `create or replace function ${by}() returns trigger language plpgsql as $$${body}$$`,
  `create trigger ${name} ${event} on audit_segments
for each ${event === 'before truncate' ? 'statement' : 'row'} execute function ${by}()`,
  `alter table audit_segments enable always trigger ${name}`,
])

// The role of the gateways may delete nothing itself (deploy/postgres). No table of a session's own stands in
// the place of ours.
const REMOVERS = [
  `create function audit_rows_remove(bigint, bigint) returns void language sql security definer as $$
delete from audit_rows where place between $1 and $2 and place <= (select max(last_place) from audit_segments)
  and exists (select from audit_rows later where later.stream = audit_rows.stream and later.seq > audit_rows.seq) $$`,
  `create function audit_rows_remove_checkpoints(integer, bigint) returns void language sql security definer as $$
delete from audit_cosignatures where tree = $1 and size <= $2 and size <= (select max(last) + 1 from audit_segments)
  and size < (select max(size) from audit_checkpoints where tree = $1);
delete from audit_checkpoints where tree = $1 and size <= $2 and size <= (select max(last) + 1 from audit_segments)
  and size < (select max(size) from audit_checkpoints where tree = $1) $$`,
  ...['audit_rows_remove(bigint, bigint)', 'audit_rows_remove_checkpoints(integer, bigint)'].flatMap(
    (name) => [
      `revoke execute on function ${name} from public`,
      `do $do$ begin execute format('alter function ${name} set search_path = %I, pg_temp', current_schema()); end $do$`,
    ],
  ),
]

// Else the space of what is removed is only used again when a fifth of the table is gone.
const GIVE_SPACE_BACK = ['audit_rows', 'audit_tiles', 'audit_checkpoints'].map(
  (table) =>
    `alter table ${table} set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000)`,
)

/** PostgreSQL's half of migration 0098. */
export const postgresSegments = auditSegments([...CREATE, ...REMOVERS, ...GIVE_SPACE_BACK])
