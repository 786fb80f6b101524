import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Logger } from 'pino'
import type { Arrival } from '../../plugins/plugin.ts'
import { REASONS, Refusal } from '../../plugins/refusal.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { arrive, splitTarget } from './arrival.ts'
import { framingFault } from './framing.ts'
import type { OpenCall, OpenCalls } from './open-calls.ts'
import { reportOf, resultOf } from './outcome.ts'
import { refusalReply } from './refusal.ts'
import type { Answered, Ended } from './route.ts'
import type { Router } from './router.ts'
import { type Cut, type Ending, send } from './send.ts'

export interface ServeOptions {
  /** The routes in force: asked for each request, so that a reload swaps them for the next one. */
  readonly router: () => Router
  readonly log: Logger
  /** For the one line of each request. */
  readonly requestLog: Logger
  readonly metrics: Metrics
  readonly writeStallMs: number
  readonly clock: () => number
  /** True once the process is stopping: answers then close their connections. */
  readonly draining: () => boolean
  readonly calls: OpenCalls
  /** Told of each request under way, so that a drain can wait for it. */
  readonly track: (underWay: Promise<void>) => void
}

/** One request's life at a door: arrive, route, decide and act, send, settle, log (HOUSE.md). */
export function serve(options: ServeOptions): RequestListener {
  return (req, res) => {
    if (!distrusted.has(req.socket)) options.track(request(req, res, options))
  }
}

// Connections on which a request was framed as no honest client would: the bytes behind it may be anything, so nothing
// more is looked at until the refusal is out and the connection closed (SECURITY threat 10).
const distrusted = new WeakSet<Socket>()

/** What a refused caller may go on sending before it is cut off. Bytes. */
const DISCARDED = 4 * 1024 * 1024

// A connection that is closed with bytes unread is reset, and the caller would never see why it was refused.
function discard(req: IncomingMessage): void {
  let size = 0
  req.on('data', (chunk: Buffer) => {
    size += chunk.length
    if (size > DISCARDED) req.destroy()
  })
  req.resume()
}

interface Handled extends Answered {
  readonly arrival: Arrival
  /** The route's path, never the caller's: a label must not grow with what strangers send. */
  readonly path: string
}

async function request(req: IncomingMessage, res: ServerResponse, options: ServeOptions): Promise<void> {
  const at = options.clock()
  const gone = new AbortController()
  let stream: Cut | null = null
  const call: OpenCall = {
    // A stream is ended in the way of its dialect; what hangs before or after it is given up.
    cut: (reason) => {
      if (stream && !res.writableEnded) stream(reason)
      else res.destroy()
    },
    stillHolds: null,
  }
  const forget = options.calls.add(call)
  res.once('close', () => {
    forget()
    if (!res.writableFinished) gone.abort()
  })
  const handled = await handle(req, res, at, gone.signal, options.router())
  if (!req.complete) discard(req)
  const ending = await send(res, handled.reply, {
    headers: headersOf(handled, req, options.draining()),
    writeStallMs: options.writeStallMs,
    onStream: (cut) => {
      stream = cut
      call.stillHolds = handled.stillHolds
    },
  }).catch((error: unknown): Ending => {
    // A header that Node will not write, say: this answer is lost, and nothing else may be.
    options.log.error({ err: error, reqId: handled.arrival.id }, 'an answer could not be sent')
    res.destroy()
    return { reason: 'upstream_broken', status: handled.reply.status, bytes: 0 }
  })
  const report = handled.reply.report?.() ?? null
  const ended: Ended = { ending, report, refusal: handled.refusal, at: options.clock() }
  handled.settle(ended)
  count(handled, ended, options.metrics)
  note(handled, ended, options)
}

async function handle(
  req: IncomingMessage,
  res: ServerResponse,
  at: number,
  signal: AbortSignal,
  router: Router,
): Promise<Handled> {
  const fault = framingFault(req)
  const door = { req, res, at, signal }
  if (fault !== null) {
    distrusted.add(req.socket)
    return refused(arrive({ ...door, params: {} }), fault, 'framing')
  }
  try {
    const { route, params } = router(req.method ?? '', splitTarget(req.url ?? '/').path)
    const arrival = arrive({ ...door, params })
    return { ...(await route.answer(arrival)), arrival, path: route.path }
  } catch (error) {
    const refusal = error instanceof Refusal ? error : new Refusal('internal', { cause: error })
    return refused(arrive({ ...door, params: {} }), refusal, 'router')
  }
}

function refused(arrival: Arrival, refusal: Refusal, by: string): Handled {
  const reply = refusalReply(refusal, arrival.id)
  return {
    arrival,
    reply,
    refusal,
    by,
    path: 'none',
    principalId: null,
    receipt: null,
    stillHolds: null,
    settle: () => {},
  }
}

/** What every answer carries (WIRE.md §1). */
function headersOf(
  { arrival, receipt }: Handled,
  req: IncomingMessage,
  draining: boolean,
): Record<string, string> {
  const headers: Record<string, string> = {
    'x-request-id': arrival.id,
    'request-id': arrival.id,
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
    'strict-transport-security': 'max-age=31536000',
    ...arrival.answer,
  }
  if (receipt) headers['audit-receipt'] = `stream=${receipt.stream}, seq=${receipt.seq}, hash=${receipt.hash}`
  // A body that was announced with 100-continue and never asked for would be taken for the next request.
  if (draining || (req.headers.expect !== undefined && !req.complete)) headers.connection = 'close'
  return headers
}

function count({ arrival, path, refusal, by }: Handled, ended: Ended, metrics: Metrics): void {
  const { status } = ended.ending
  metrics.requests.inc({ route: path, method: path === 'none' ? 'none' : arrival.method, status })
  metrics.latency.observe({ route: path }, (ended.at - arrival.at) / 1000)
  if (refusal) metrics.refusals.inc({ reason: refusal.reason })
  const report = reportOf(ended)
  // What a plugin refused has reached nobody.
  if (!report?.provider || (refusal && by !== 'handler')) return
  if (isMcp(path)) metrics.mcpCalls.inc({ resource: report.provider, result: resultOf(ended) })
  const { input_tokens: input, output_tokens: output } = report.detail
  if (typeof input === 'number') metrics.tokens.inc({ provider: report.provider, direction: 'input' }, input)
  if (typeof output === 'number')
    metrics.tokens.inc({ provider: report.provider, direction: 'output' }, output)
}

const isMcp = (path: string): boolean => path.startsWith('/v1/mcp')

// The caller's own id for the request, when it is sane: for the log only.
const CLIENT_ID = /^[A-Za-z0-9._:-]{1,128}$/

function note(
  { arrival, path, by, principalId }: Handled,
  ended: Ended,
  { log, requestLog }: ServeOptions,
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
    resource: isMcp(path) ? provider : undefined,
    ending: ending.reason,
    bytes: ending.bytes,
    ms: ended.at - arrival.at,
  }
  // A cause is a fault of ours or of something behind us, and the one line where its text may stand.
  if (cause instanceof Error && reason !== undefined && REASONS[reason].status >= 500)
    log.error({ ...line, err: cause }, 'request')
  else requestLog.info(line, 'request')
}
