import type { Outcome } from '../plugins/audit.ts'
import type { Refusal } from '../plugins/refusal.ts'
import type { Report } from './reply.ts'
import type { Ended } from './route.ts'
import type { Ending } from './send.ts'

/** What the outcome row of a call says: how it ended, its status, bytes and latency, and the handler's own report. */
export function outcomeOf(ended: Ended, startedAt: number): Outcome {
  const { ending, refusal, at } = ended
  const report = ended.report ?? reportOf(refusal)
  return {
    at,
    status: statusOf(ending, refusal !== null || report?.failed === true),
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

/** What a refusal says of the provider that was asked in vain. */
function reportOf(refusal: Refusal | null): Report | null {
  const { provider, upstream_status: status } = refusal?.detail ?? {}
  if (typeof provider !== 'string') return null
  return { provider, detail: typeof status === 'number' ? { upstream_status: status } : {} }
}

function statusOf({ reason, status }: Ending, failed: boolean): Outcome['status'] {
  if (reason !== 'complete') return 'truncated'
  return status < 400 && !failed ? 'success' : 'error'
}
