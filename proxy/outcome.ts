import type { Outcome } from '../plugins/audit.ts'
import type { Ended } from './route.ts'
import type { Ending } from './send.ts'

/** What the outcome row of a call says: how it ended, its status, bytes and latency, and the handler's own report. */
export function outcomeOf({ ending, report, refusal, at }: Ended, startedAt: number): Outcome {
  return {
    at,
    status: statusOf(ending),
    provider: report?.provider ?? null,
    detail: {
      http_status: ending.status,
      ending: ending.reason,
      response_bytes: ending.bytes,
      latency_ms: Math.max(0, Math.round(at - startedAt)),
      ...(refusal && { reason: refusal.reason }),
      ...report?.detail,
    },
  }
}

function statusOf({ reason, status }: Ending): Outcome['status'] {
  if (reason !== 'complete') return 'truncated'
  return status < 400 ? 'success' : 'error'
}
