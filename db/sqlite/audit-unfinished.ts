import type SQLite from 'better-sqlite3'
import { MAIN_STREAM } from '../audit/leaf.ts'
import type { OpenDecision } from '../audit/writer.ts'

/**
 * Allowed decisions without outcome up to row `upTo`, since the last `service.started` before it; none where the last row
 * says that the service stopped in order, because a drain writes every outcome first.
 */
export function openDecisions(db: SQLite.Database, upTo: number): readonly OpenDecision[] {
  const last = db
    .prepare<[string, number], { action: string }>(
      'select action from audit_log where stream = ? and seq = ?',
    )
    .get(MAIN_STREAM, upTo)
  if (!last || last.action === 'service.stopped') return []
  return db.prepare<[string, number, number], OpenDecision>(OPEN).all(MAIN_STREAM, lastStart(db, upTo), upTo)
}

function lastStart(db: SQLite.Database, upTo: number): number {
  const found = db
    .prepare<[string, number], { seq: number | null }>(
      `select max(seq) as seq from audit_log indexed by audit_log_action
       where action = 'service.started' and stream = ? and seq <= ?`,
    )
    .get(MAIN_STREAM, upTo)
  return found?.seq ?? 0
}

const OPEN = `select request_id, principal_id, principal_type, action, tool, model, provider, cert_thumbprint, dpop_jkt
  from audit_log as decision
  where stream = ? and seq > ? and seq <= ? and status = 'allowed' and request_id is not null
    and not exists (
      select 1 from audit_log as outcome
      where outcome.request_id = decision.request_id
        and outcome.status in ('success', 'error', 'truncated', 'unknown'))
  order by seq`
