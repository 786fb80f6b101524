import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Logger } from 'pino'
import type { AuthorityChanges } from '../../db/authority-moves.ts'
import { isObject, type JsonObject, type UnknownRecord } from '../../db/support/json.ts'
import { sessionIdOf } from '../../plugins/audit/decision.ts'
import type { CallAuthority } from '../../plugins/call-authority.ts'
import type { TracedCall } from '../../plugins/call-trace.ts'
import type { Arrival, CallSettlement } from '../../plugins/plugin.ts'
import { REFUSAL_REASONS, Refusal, toRefusal } from '../../plugins/refusal.ts'
import type { GatewayLogs, RequestLine } from '../telemetry/log.ts'
import type { GatewayMetrics } from '../telemetry/metrics.ts'
import type { CallTelemetry } from '../telemetry/otlp/telemetry.ts'
import type { AttemptFigures } from '../telemetry/provider-figures.ts'
import { CONNECTION_PLACE, type PlacedConnection } from '../tls/connection-limit.ts'
import { createArrival, type Router, splitTarget } from './arrival.ts'
import {
  discardRequestBody,
  distrustConnection,
  framingFault,
  isDistrusted,
  requireSoundBody,
} from './framing.ts'
import {
  CallHangup,
  isStillAllowed,
  type MemoryBudget,
  type OpenCall,
  type RequestDrain,
} from './open-calls.ts'
import { refusalReply, refusalReport } from './refusal.ts'
import type { CallReport } from './reply.ts'
import {
  type AskCallAgain,
  type FinishedCall,
  type HandledRequest,
  type OnAllowed,
  printReceipt,
} from './route.ts'
import { type ReplyEnding, sendReply, type TerminateStream } from './send.ts'

/** The router in force at a listener. A reload swaps it for the next request. */
export interface MountedRouter {
  router: Router
}

interface RequestReporting {
  readonly log: Logger
  readonly requestLog: GatewayLogs['requestLog']
  readonly metrics: GatewayMetrics
  readonly clock: () => number
}

export interface ServeOptions extends RequestReporting {
  readonly mounted: Readonly<MountedRouter>
  readonly writeStallMs: number
  readonly drain: RequestDrain
  readonly budget: MemoryBudget
  /** The exports of telemetry in force; null: there are none. */
  readonly telemetry: Readonly<{ current: Pick<CallTelemetry, 'begin'> | null }>
  /** Counts changes that may have overtaken decisions. */
  readonly moves: Readonly<Pick<AuthorityChanges, 'count'>>
}

/**
 * Makes the listener of requests: arrive, route, decide and act, send, settle, log (docs/architecture.md).
 */
export function createRequestListener(options: ServeOptions): RequestListener {
  return (req, res) => {
    if (!isDistrusted(req.socket)) void new LiveRequest(req, res, options).live()
  }
}

/** One request, from its arrival to its log line. */
class LiveRequest implements OpenCall, CallAuthority {
  readonly #req: IncomingMessage
  readonly #res: ServerResponse
  readonly #options: ServeOptions
  readonly #hangup = new CallHangup()
  askAgain: AskCallAgain | null = null
  place = -1
  #allowed: AskCallAgain | null = null
  /** The count of changes of authority when it arrived or was asked about last. */
  #moves: number
  #stream: TerminateStream | null = null

  constructor(req: IncomingMessage, res: ServerResponse, options: ServeOptions) {
    this.#req = req
    this.#res = res
    this.#options = options
    this.#moves = options.moves.count
  }

  /** One function from end to end: each that waits costs as much memory as a call. Never rejects. */
  async live(): Promise<void> {
    const began = performance.now()
    const { budget, drain, mounted, log, writeStallMs, telemetry } = this.#options
    const req = this.#req
    const res = this.#res
    const held = budget.open(this, this.#hangup)
    drain.calls.add(this)
    res.on('close', () => {
      if (!res.writableFinished) this.#hangup.hangUp()
    })
    try {
      const { path, query } = splitTarget(req.url ?? '/')
      const at = this.#options.clock()
      const incoming = { req, res, path, query, at, hangup: this.#hangup, authority: this, held }
      const unsound = framingFault(req)
      if (unsound !== null) distrustConnection(req.socket)
      // All that came together is there then: a short body need not be waited for.
      await Promise.resolve()
      let handled: HandledRequest
      try {
        if (unsound !== null) throw unsound
        requireSoundBody(req)
        const { route, params } = mounted.router(req.method ?? '', path)
        const trace = telemetry.current?.begin(route.surface, req.headers, at) ?? null
        const arrival = createArrival(incoming, params, trace)
        const answered = await route.answer(arrival, this.#onAllowed)
        handled = { ...answered, arrival, path: route.path, surface: route.surface }
      } catch (error) {
        handled = refusedRequest(createArrival(incoming), error, unsound === null ? 'router' : 'framing')
      }
      if (handled.principalId !== null) this.markKnown()
      // A call with its answer waits for nothing any more; a stream is asked again when it begins.
      this.askAgain = null
      let closes = drain.draining || unsound !== null || handled.reply.headers?.connection === 'close'
      if (!req.complete) closes = discardRequestBody(req, res, closes || !res.shouldKeepAlive)
      const headers = headersOf(handled, { now: this.#options.clock(), closes })
      let ending: ReplyEnding
      try {
        ending = await sendReply(res, handled.reply, {
          ...{ headers, fixed: handled.arrival.answer },
          ...{ writeStallMs, onStream: this.#onStream },
        })
      } catch (error) {
        // A header that Node will not write, say: this answer is lost, and nothing else may be.
        log.error({ err: error, reqId: handled.arrival.id }, 'an answer could not be sent')
        res.destroy()
        ending = { reason: 'upstream_broken', status: handled.reply.status, bytes: 0 }
      }
      finishRequest(handled, ending, this.#options, began)
    } catch (error) {
      logFault(this.#options, 'serve', error)
      res.destroy()
    }
    held.end()
    drain.calls.remove(this)
  }

  /** Keeps its connection from being ended for a newcomer's sake until it is over. */
  markKnown(): void {
    const socket: Socket & PlacedConnection = this.#req.socket
    const { [CONNECTION_PLACE]: place } = socket
    if (place) place.isProtected = true
  }

  get unchanged(): boolean {
    return this.#options.moves.count === this.#moves
  }

  async confirm(): Promise<void> {
    // Read first: a change while it is asked is asked about again.
    const { count } = this.#options.moves
    const at = this.#options.clock()
    if (!this.#allowed || !(await isStillAllowed(this.#allowed, at))) throw new Refusal('authority_revoked')
    this.#moves = count
  }

  readonly #onAllowed: OnAllowed = (ask, principalId) => {
    if (principalId !== null) this.markKnown()
    this.#allowed = ask
    this.askAgain = ask
  }

  readonly #onStream = (cut: TerminateStream): void => {
    this.#stream = cut
    this.askAgain = this.#allowed
  }

  /**
   * A stream is ended as its dialect does. A waiting call is refused if its authority is gone; one that hangs
   * before or after that is given up.
   */
  terminate(reason: Parameters<TerminateStream>[0]): void {
    if (this.#stream && !this.#res.writableEnded) this.#stream(reason)
    else if (reason === 'revoked' && !this.#hangup.gone) this.#hangup.hangUp(new Refusal('authority_revoked'))
    else this.#res.destroy()
  }
}

function refusedRequest(arrival: Arrival, error: unknown, by: string): HandledRequest {
  const refusal = toRefusal(error, 'internal')
  const reply = refusalReply(refusal, arrival.id)
  return {
    arrival,
    reply,
    refusal,
    by,
    path: 'none',
    surface: 'public',
    facts: arrival,
    principalId: null,
    via: null,
    receipt: null,
    settled: () => {},
  }
}

/** Makes the headers that every answer carries (docs/protocol.md#answer-headers). */
function headersOf(
  { arrival, receipt }: HandledRequest,
  { now, closes }: { readonly now: number; readonly closes: boolean },
): Record<string, string> {
  const headers: Record<string, string> = {
    date: httpDate(now),
    'x-request-id': arrival.id,
    'request-id': arrival.id,
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
    'strict-transport-security': 'max-age=31536000',
  }
  if (receipt && 'seq' in receipt) headers['audit-receipt'] = printReceipt(receipt)
  if (closes) headers.connection = 'close'
  return headers
}

let dateSecond = -1
let dateText = ''

/** Returns a `Date` (RFC 9110 §6.6.1) by the clock that proofs are judged by: our clients go by it. */
function httpDate(now: number): string {
  const second = Math.floor(now / 1000)
  if (second !== dateSecond) {
    dateSecond = second
    dateText = new Date(now).toUTCString()
  }
  return dateText
}

/** Does the work after an answer: outcome row, figures and log line, each whatever another one throws. */
function finishRequest(
  handled: HandledRequest,
  ending: ReplyEnding,
  telling: RequestReporting,
  began: number,
): void {
  const { arrival, refusal, reply, settled } = handled
  const isolated = (step: string, work: () => void): void => {
    try {
      work()
    } catch (error) {
      logFault(telling, step, error, arrival.id)
    }
  }
  let report: CallReport | null = null
  isolated('report', () => {
    report = reply.report?.() ?? (refusal && refusalReport(refusal))
  })
  const ended: FinishedCall = { ending, report, refusal, at: telling.clock() }
  isolated('settle', () =>
    settled(settlementOf(handled, ended), (by, error) => logFault(telling, by, error, arrival.id)),
  )
  isolated('count', () => countRequest(handled, ended, telling.metrics, began))
  const { trace } = arrival
  // Before the line, which names it.
  if (trace) isolated('trace', () => trace.end(tracedCallOf(handled, ended)))
  isolated('log', () => logRequest(handled, ended, telling))
}

function tracedCallOf(handled: HandledRequest, ended: FinishedCall): TracedCall {
  const { facts, path: route, refusal, by, receipt, reply } = handled
  const allowed = refusal === null || by === 'handler'
  const { ending, report } = ended
  return {
    ...{ facts, route, allowed, by },
    session: sessionIdOf(facts.headers),
    status: ending.status,
    result: allowed ? resultOf(ended) : 'refused',
    reason: report?.reason ?? refusal?.reason ?? null,
    receipt: receipt && 'seq' in receipt ? receipt : null,
    upstream: report?.provider ?? null,
    tool: report?.tool ?? null,
    rpcCode: reply.rpcCode ?? null,
    detail: report?.detail ?? {},
    line: () => lineOf(handled, ended),
  }
}

function logFault(
  { log, metrics }: Pick<RequestReporting, 'log' | 'metrics'>,
  step: string,
  error: unknown,
  reqId?: string,
): void {
  try {
    metrics.faults.inc({ step })
    log.error({ err: error, step, reqId }, 'a step after an answer failed')
  } catch {
    // The log itself is what failed: nothing is left to tell it to.
  }
}

function settlementOf({ arrival, refusal, by }: HandledRequest, ended: FinishedCall): CallSettlement {
  const { ending, at, report } = ended
  const detail: MutableObject<JsonObject> = {
    http_status: ending.status,
    ending: ending.reason,
    response_bytes: ending.bytes,
    latency_ms: Math.max(0, Math.round(at - arrival.at)),
  }
  if (report?.reason !== undefined) detail.reason = report.reason
  return {
    at,
    // A call that the handler refused had been allowed: its outcome is an error.
    status: refusal && by !== 'handler' ? 'refused' : resultOf(ended),
    provider: report?.provider ?? null,
    detail: Object.assign(detail, report?.detail),
  }
}

type MutableObject<Value> = { -readonly [Member in keyof Value]: Value[Member] }

function resultOf(ended: FinishedCall): 'success' | 'error' | 'truncated' | 'unknown' {
  const { reason, status } = ended.ending
  if (reason !== 'complete') return 'truncated'
  if (ended.report?.unknown === true) return 'unknown'
  const failed = ended.refusal !== null || ended.report?.failed === true
  return status < 400 && !failed ? 'success' : 'error'
}

function countRequest(
  { arrival, path, surface, refusal, by, receipt }: HandledRequest,
  ended: FinishedCall,
  metrics: GatewayMetrics,
  began: number,
): void {
  const method = path === 'none' ? 'none' : arrival.method
  metrics.requests.inc({ route: path, method, status: ended.ending.status })
  metrics.latency.observe({ route: path }, (ended.at - arrival.at) / 1000)
  if (refusal) metrics.refusals.inc({ reason: refusal.reason })
  const limit = refusal?.reason === 'limit_reached' ? refusal.report.limit : undefined
  if (isObject(limit) && typeof limit.id === 'string') metrics.limits.noteRefused(limit.id)
  const losses = refusal?.report.losses
  for (const loss of Array.isArray(losses) ? losses : [])
    metrics.translationRefused.inc({ loss: String(loss) })
  if (receipt && 'summarised' in receipt) metrics.summarised.inc()
  const { report } = ended
  // A call that a plugin refused has reached no upstream.
  if (!report?.provider || (refusal && by !== 'handler')) return
  const { provider, detail } = report
  const result = resultOf(ended)
  if (surface === 'mcp') metrics.mcpCalls.inc({ resource: provider, result })
  if (surface !== 'llm') return
  metrics.llmCalls.inc({ provider, result })
  const { tokens, tokens_unknown: unknown, searches, server_tools: tools, attempts, translated } = detail
  const { from, to } = isObject(translated) ? translated : {}
  if (typeof from === 'string' && typeof to === 'string') metrics.translated.inc({ from, to })
  if (typeof unknown === 'string') metrics.tokensUnknown.inc({ provider, reason: unknown })
  const counted = isObject(tokens) ? countTokens(provider, tokens, metrics) : { input: 0, output: 0 }
  if (searches !== undefined) metrics.serverTools.inc({ provider, tool: 'web_search' }, Number(searches))
  if (isObject(tools))
    for (const tool of Object.keys(tools)) metrics.serverTools.inc({ provider, tool }, Number(tools[tool]))
  metrics.providers.note({
    provider,
    // Made by proxy/llm/refusals.ts, of those that were asked or passed over.
    attempts: (attempts ?? []) as unknown as readonly AttemptFigures[],
    failed: result === 'error' || ended.ending.reason === 'upstream_broken',
    reason: report.reason,
    ms: performance.now() - began,
    timing: report.timing,
    tokens: counted,
    at: ended.at,
  })
}

function countTokens(
  provider: string,
  tokens: UnknownRecord,
  metrics: GatewayMetrics,
): { readonly input: number; readonly output: number } {
  const counted = { input: 0, output: 0 }
  for (const part of Object.keys(tokens)) {
    const count = Number(tokens[part])
    if (part === 'input' || part === 'output') counted[part] = count
    else metrics.tokenParts.inc({ provider, part }, count)
  }
  metrics.tokens.inc({ provider, direction: 'input' }, counted.input)
  metrics.tokens.inc({ provider, direction: 'output' }, counted.output)
  return counted
}

// The caller's own id for the request, when it is sane: for the log only.
const CLIENT_ID = /^[A-Za-z0-9._:-]{1,128}$/

function logRequest(
  handled: HandledRequest,
  ended: FinishedCall,
  { log, requestLog }: RequestReporting,
): void {
  const { reason, cause } = ended.report ?? {}
  const line = lineOf(handled, ended)
  // A cause is a fault of ours or of an upstream, and this line alone may hold its text.
  if (cause instanceof Error && reason !== undefined && REFUSAL_REASONS[reason].status >= 500)
    log.error({ ...line, err: cause }, 'request')
  else requestLog(line)
}

function lineOf(
  { arrival, path, surface, by, principalId, via, receipt }: HandledRequest,
  ended: FinishedCall,
): RequestLine {
  const { ending } = ended
  const { reason, tool, provider } = ended.report ?? {}
  const clientId = arrival.headers['x-request-id'] ?? arrival.headers['x-client-request-id']
  return {
    reqId: arrival.id,
    trace_id: arrival.trace?.traceId ?? undefined,
    client_request_id: typeof clientId === 'string' && CLIENT_ID.test(clientId) ? clientId : undefined,
    // The control socket has none.
    remote_address: arrival.remoteAddress || undefined,
    method: arrival.method,
    path: path === 'none' ? arrival.path.slice(0, 256) : path,
    status: ending.status,
    principal: principalId ?? undefined,
    via: via ?? undefined,
    reason,
    by: by ?? undefined,
    tool,
    resource: surface === 'mcp' ? provider : undefined,
    provider: surface === 'llm' ? provider : undefined,
    ending: ending.reason,
    bytes: ending.bytes,
    ms: ended.at - arrival.at,
    ...(receipt && 'summarised' in receipt && receipt),
  }
}
