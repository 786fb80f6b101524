import type { Logger } from 'pino'
import { REASONS } from '../../plugins/refusal.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { reportOf, resultOf } from './outcome.ts'
import type { Ended, Handled } from './route.ts'

/** Counts an answered request. */
export function count(
  { arrival, path, surface, refusal, by }: Handled,
  ended: Ended,
  metrics: Metrics,
): void {
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

interface RequestLogs {
  readonly log: Logger
  /** For the one line of each request. */
  readonly requestLog: Logger
}

/** Writes the one line of an answered request. */
export function logRequest(
  { arrival, path, surface, by, principalId }: Handled,
  ended: Ended,
  { log, requestLog }: RequestLogs,
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
