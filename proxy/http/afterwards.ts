import type { Logger } from 'pino'
import type { Settlement } from '../../plugins/plugin.ts'
import { REASONS } from '../../plugins/refusal.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import type { Report } from './reply.ts'
import type { Ended, Handled } from './route.ts'
import type { Ending } from './send.ts'

/** What is told of a request when it has been answered. */
export interface Telling {
  readonly log: Logger
  /** For the one line of each request. */
  readonly requestLog: Logger
  readonly metrics: Metrics
  readonly clock: () => number
}

/**
 * What follows an answer: its outcome row, figures and log line. Each is done whatever another one throws, and none can
 * end the process: an answer that cannot be told of has still been given. Only the ledger's own faults stop the service.
 */
export function afterwards(handled: Handled, ending: Ending, telling: Telling): void {
  const { arrival, refusal } = handled
  const isolated = (step: string, work: () => void): void => {
    try {
      work()
    } catch (error) {
      fault(telling, step, error, arrival.id)
    }
  }
  let report: Report | null = null
  isolated('report', () => {
    report = handled.reply.report?.() ?? null
  })
  const ended: Ended = { ending, report, refusal, at: telling.clock() }
  isolated('settle', () =>
    handled.settled(settlementOf(handled, ended), (by, error) => fault(telling, by, error, arrival.id)),
  )
  isolated('count', () => count(handled, ended, telling.metrics))
  isolated('log', () => logRequest(handled, ended, telling))
}

/** Logs and counts what was thrown where nobody is left to be answered. Never throws. */
export function fault(
  { log, metrics }: Pick<Telling, 'log' | 'metrics'>,
  step: string,
  error: unknown,
  reqId?: string,
): void {
  try {
    metrics.faults.inc({ step })
    log.error({ err: error, step, reqId }, 'what follows an answer failed')
  } catch {
    // The log itself is what failed: nothing is left to tell it to.
  }
}

/** Returns what came of a call: how it ended, its status, bytes and latency, and the handler's own report. */
function settlementOf({ arrival, refusal, by }: Handled, ended: Ended): Settlement {
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
function reportOf({ report, refusal }: Pick<Ended, 'report' | 'refusal'>): Report | null {
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
function resultOf(ended: Ended): 'success' | 'error' | 'truncated' {
  const { reason, status } = ended.ending
  if (reason !== 'complete') return 'truncated'
  const failed = ended.refusal !== null || ended.report?.failed === true
  return status < 400 && !failed ? 'success' : 'error'
}

/** Counts an answered request. */
function count({ arrival, path, surface, refusal, by }: Handled, ended: Ended, metrics: Metrics): void {
  const { status } = ended.ending
  metrics.requests.inc({ route: path, method: path === 'none' ? 'none' : arrival.method, status })
  metrics.latency.observe({ route: path }, (ended.at - arrival.at) / 1000)
  if (refusal) metrics.refusals.inc({ reason: refusal.reason })
  const report = reportOf(ended)
  // What a plugin refused has reached nobody.
  if (!report?.provider || (refusal && by !== 'handler')) return
  if (surface === 'mcp') metrics.mcpCalls.inc({ resource: report.provider, result: resultOf(ended) })
  const { input_tokens: input, output_tokens: output } = report.detail
  if (typeof input === 'number') metrics.tokens.inc({ provider: report.provider, direction: 'input' }, input)
  if (typeof output === 'number')
    metrics.tokens.inc({ provider: report.provider, direction: 'output' }, output)
}

// The caller's own id for the request, when it is sane: for the log only.
const CLIENT_ID = /^[A-Za-z0-9._:-]{1,128}$/

/** Writes the one line of an answered request. */
function logRequest(
  { arrival, path, surface, by, principalId }: Handled,
  ended: Ended,
  { log, requestLog }: Telling,
): void {
  const { ending } = ended
  const { reason, cause, tool, provider } = reportOf(ended) ?? {}
  const clientId = arrival.headers['x-request-id'] ?? arrival.headers['x-client-request-id']
  const line = {
    reqId: arrival.id,
    client_request_id: typeof clientId === 'string' && CLIENT_ID.test(clientId) ? clientId : undefined,
    method: arrival.method,
    path: path === 'none' ? arrival.path.slice(0, 256) : path,
    status: ending.status,
    principal: principalId ?? undefined,
    reason,
    by: by ?? undefined,
    tool,
    resource: surface === 'mcp' ? provider : undefined,
    ending: ending.reason,
    bytes: ending.bytes,
    ms: ended.at - arrival.at,
  }
  // A cause is a fault of ours or of something behind us, and the one line where its text may stand.
  if (cause instanceof Error && reason !== undefined && REASONS[reason].status >= 500)
    log.error({ ...line, err: cause }, 'request')
  else requestLog.info(line, 'request')
}
