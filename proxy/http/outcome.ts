import type { Settlement } from '../../plugins/plugin.ts'
import type { Report } from './reply.ts'
import type { Ended, Handled } from './route.ts'

/** Returns what came of a call: how it ended, its status, bytes and latency, and the handler's own report. */
export function settlementOf({ arrival, refusal, by }: Handled, ended: Ended): Settlement {
  const { ending, at } = ended
  const report = reportOf(ended)
  return {
    at,
    // What the handler refused had been allowed: its outcome is an error.
    status: refusal && by !== 'handler' ? 'refused' : resultOf(ended),
    provider: report?.provider ?? null,
    detail: {
      http_status: ending.status,
      ending: ending.reason,
      response_bytes: ending.bytes,
      latency_ms: Math.max(0, Math.round(at - arrival.at)),
      ...(report?.reason !== undefined && { reason: report.reason }),
      ...report?.detail,
    },
  }
}

/** Returns the handler's report, or what the refusal says in place of one: why, and of whoever was asked in vain. */
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

/** Returns how a call ended, in one word. */
export function resultOf(ended: Ended): 'success' | 'error' | 'truncated' {
  const { reason, status } = ended.ending
  if (reason !== 'complete') return 'truncated'
  const failed = ended.refusal !== null || ended.report?.failed === true
  return status < 400 && !failed ? 'success' : 'error'
}
