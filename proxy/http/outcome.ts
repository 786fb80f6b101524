import type { Outcome } from '../../plugins/audit/audit.ts'
import type { Report } from './reply.ts'
import type { Ended } from './route.ts'

/** What the outcome row of a call says: how it ended, its status, bytes and latency, and the handler's own report. */
export function outcomeOf(ended: Ended, startedAt: number): Outcome {
  const { ending, at } = ended
  const report = reportOf(ended)
  return {
    at,
    status: resultOf(ended),
    provider: report?.provider ?? null,
    detail: {
      http_status: ending.status,
      ending: ending.reason,
      response_bytes: ending.bytes,
      latency_ms: Math.max(0, Math.round(at - startedAt)),
      ...(report?.reason !== undefined && { reason: report.reason }),
      ...report?.detail,
    },
  }
}

/** The handler's report, or what the refusal says in place of one: why, and of whoever was asked in vain. */
export function reportOf({ report, refusal }: Pick<Ended, 'report' | 'refusal'>): Report | null {
  if (report || !refusal) return report
  const { reason, cause, detail } = refusal
  const { provider, resource, tool, upstream_status: status } = detail
  const name = provider ?? resource
  return {
    reason,
    cause,
    ...(typeof name === 'string' && { provider: name }),
    ...(typeof tool === 'string' && { tool }),
    detail: typeof status === 'number' ? { upstream_status: status } : {},
  }
}

/** How a call ended, in one word. */
export function resultOf(ended: Ended): Outcome['status'] {
  const { reason, status } = ended.ending
  if (reason !== 'complete') return 'truncated'
  const failed = ended.refusal !== null || ended.report?.failed === true
  return status < 400 && !failed ? 'success' : 'error'
}
