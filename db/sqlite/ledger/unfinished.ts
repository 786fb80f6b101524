import type SQLite from 'better-sqlite3'
import { MAIN_STREAM } from '../../audit/leaf.ts'
import type { OpenDecision } from '../../audit/writer.ts'

/**
 * Allowed decisions without outcome up to row `upTo`, since the last `service.started` before it; none where
 * the last row says that the service stopped in order, because a drain writes every outcome first.
 */
export function openDecisions(db: SQLite.Database, upTo: number): readonly OpenDecision[] {
  const last = db
    .prepare<[string, number], { action: string }>(
      'select action from audit_log where stream = ? and seq = ?',
    )
    .get(MAIN_STREAM, upTo)
  if (!last || last.action === 'service.stopped') return []
  const start = lastStart(db, upTo)
  const question = upTo - start > upTo / MERGE_SPEED ? BY_MERGE : BY_LOOKUP
  return db.prepare<[string, number, number], OpenDecision>(question).all(MAIN_STREAM, start, upTo)
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

// Measured on a million rows: 1.3 µs per row since the start to look its outcome up, 0.11 µs per row of the
// whole ledger to merge two runs over the index.
const MERGE_SPEED = 12

const COLUMNS =
  'request_id, principal_id, principal_type, action, tool, model, provider, cert_thumbprint, dpop_jkt'

const DECISION = `stream = ? and seq > ? and seq <= ? and status = 'allowed' and request_id is not null`

const OUTCOME = `status in ('success', 'error', 'truncated', 'unknown')`

const BY_LOOKUP = `select ${COLUMNS} from audit_log as decision
  where ${DECISION}
    and not exists (select 1 from audit_log as outcome where outcome.request_id = decision.request_id and outcome.${OUTCOME})
  order by seq`

const BY_MERGE = `select ${COLUMNS} from audit_log indexed by audit_log_request
  where ${DECISION}
    and request_id in (
      select request_id from audit_log indexed by audit_log_request where status = 'allowed' and request_id is not null
      except select request_id from audit_log indexed by audit_log_request where ${OUTCOME})
  order by seq`
