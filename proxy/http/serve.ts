import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Logger } from 'pino'
import type { Arrival } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { arrive, splitTarget } from './arrival.ts'
import { framingFault } from './framing.ts'
import type { OpenCall, OpenCalls } from './open-calls.ts'
import { settlementOf } from './outcome.ts'
import { refusalReply } from './refusal.ts'
import type { Report } from './reply.ts'
import { count, logRequest } from './request-log.ts'
import type { Ended, Handled } from './route.ts'
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

/** One request's life: arrive, route, decide and act, send, settle, log (HOUSE.md). */
export function serve(options: ServeOptions): RequestListener {
  return (req, res) => {
    if (distrusted.has(req.socket)) return
    const underWay = request(req, res, options).catch((error: unknown) => {
      fault(options, 'serve', error)
      res.destroy()
    })
    options.track(underWay)
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
  afterwards(handled, ending, options)
}

/**
 * What follows an answer: its outcome row, figures and log line. Each is done whatever another one throws, and none can
 * end the process: an answer that cannot be told of has still been given. Only the ledger's own faults stop the service.
 */
function afterwards(handled: Handled, ending: Ending, options: ServeOptions): void {
  const { arrival, refusal } = handled
  const isolated = (step: string, work: () => void): void => {
    try {
      work()
    } catch (error) {
      fault(options, step, error, arrival.id)
    }
  }
  let report: Report | null = null
  isolated('report', () => {
    report = handled.reply.report?.() ?? null
  })
  const ended: Ended = { ending, report, refusal, at: options.clock() }
  isolated('settle', () =>
    handled.settled(settlementOf(handled, ended), (by, error) => fault(options, by, error, arrival.id)),
  )
  isolated('count', () => count(handled, ended, options.metrics))
  isolated('log', () => logRequest(handled, ended, options))
}

/** Logs and counts what was thrown where nobody is left to be answered. Never throws. */
function fault({ log, metrics }: ServeOptions, step: string, error: unknown, reqId?: string): void {
  try {
    metrics.faults.inc({ step })
    log.error({ err: error, step, reqId }, 'what follows an answer failed')
  } catch {
    // The log itself is what failed: nothing is left to tell it to.
  }
}

async function handle(
  req: IncomingMessage,
  res: ServerResponse,
  at: number,
  signal: AbortSignal,
  router: Router,
): Promise<Handled> {
  const fault = framingFault(req)
  const request = { req, res, at, signal }
  if (fault !== null) {
    distrusted.add(req.socket)
    return refused(arrive({ ...request, params: {} }), fault, 'framing')
  }
  try {
    const { route, params } = router(req.method ?? '', splitTarget(req.url ?? '/').path)
    const arrival = arrive({ ...request, params })
    return { ...(await route.answer(arrival)), arrival, path: route.path, surface: route.surface }
  } catch (error) {
    const refusal = error instanceof Refusal ? error : new Refusal('internal', { cause: error })
    return refused(arrive({ ...request, params: {} }), refusal, 'router')
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
    surface: 'public',
    principalId: null,
    receipt: null,
    stillHolds: null,
    settled: () => {},
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
