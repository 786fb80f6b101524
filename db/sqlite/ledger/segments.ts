import { auditSegments, NO_NEXT_SEGMENT, SEGMENT_REWRITTEN } from '../../migrations/0098_audit_segments.ts'

const refuse = (name: string, event: string, when: string, message: string): string =>
  `create trigger ${name} before ${event} ${when}
begin
  select raise(abort, '${message}');
end`

const SEGMENTS = 'audit_segments takes only the next segment that a row says is archived'

/**
 * SQLite's half of migration 0098. Rows go only up to the boundary of a segment, and never the newest one: the
 * next row needs its parent. A leaf's place is one more than its index.
 */
export const sqliteSegments = auditSegments([
  'drop trigger audit_rows_delete',
  refuse(
    'audit_rows_delete',
    'delete on audit_rows',
    `when not exists (select 1 from audit_segments where last_place >= old.seq)
  or old.seq = (select max(seq) from audit_rows)`,
    'audit_log is append-only',
  ),
  refuse(
    'audit_segments_insert',
    'insert on audit_segments',
    `when new.last_place <> new.last + 1 or new.seq <= new.last_place
    or ${NO_NEXT_SEGMENT}`,
    SEGMENTS,
  ),
  refuse('audit_segments_update', `${SEGMENT_REWRITTEN} on audit_segments`, '', SEGMENTS),
  refuse('audit_segments_delete', 'delete on audit_segments', '', SEGMENTS),
])
