import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Arrival } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { afterwards, fault, type Telling } from './afterwards.ts'
import { arrive, splitTarget } from './arrival.ts'
import { framingFault } from './framing.ts'
import type { Drain, OpenCall } from './open-calls.ts'
import { refusalReply } from './refusal.ts'
import type { Handled } from './route.ts'
import type { Router } from './router.ts'
import { type Cut, type Ending, send } from './send.ts'

/** The router in force at a place that listens. A reload swaps it for the next request. */
export interface Mounted {
  router: Router
}

export interface ServeOptions extends Telling {
  readonly mounted: Readonly<Mounted>
  readonly writeStallMs: number
  /** Told of each request under way, so that a stop can wait for it, and a revocation cut it. */
  readonly drain: Drain
}

/** One request's life: arrive, route, decide and act, send, settle, log (HOUSE.md). */
export function serve(options: ServeOptions): RequestListener {
  return (req, res) => {
    if (distrusted.has(req.socket)) return
    const underWay = request(req, res, options).catch((error: unknown) => {
      fault(options, 'serve', error)
      res.destroy()
    })
    options.drain.track(underWay)
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
  const forget = options.drain.calls.add(call)
  res.once('close', () => {
    forget()
    if (!res.writableFinished) gone.abort()
  })
  const handled = await handle(req, res, at, gone.signal, options.mounted.router)
  if (!req.complete) discard(req)
  const ending = await send(res, handled.reply, {
    headers: headersOf(handled, req, options.drain.draining),
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
