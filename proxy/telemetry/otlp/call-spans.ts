import type { IncomingHttpHeaders } from 'node:http'
import type { UnknownRecord } from '../../../db/support/json.ts'
import type {
  CallTrace,
  TraceContext,
  TracedAttempt,
  TracedCall,
  TracedRequest,
} from '../../../plugins/call-trace.ts'
import { newTraceId, parseTraceparent, printTraceparent, type RemoteParent, sampleTrace } from './context.ts'
import { recordFigures } from './figures.ts'
import type { CallHistograms } from './histograms.ts'
import type { ExportLane } from './lane.ts'
import { logRecord } from './log-records.ts'
import type { TelemetryOptions } from './options.ts'
import { attemptSpan, callSpan, type SpannedAttempt } from './spans.ts'

/** The means to export what is said of calls. Null: its signal is not exported. */
export interface CallExports {
  readonly sample: TelemetryOptions['sample']
  readonly spans: Pick<ExportLane, 'add'> | null
  readonly logs: Pick<ExportLane, 'add'> | null
  readonly histograms: CallHistograms | null
}

/** The attempts of one call that have spans of their own: a list of all MCP servers asks as many as there are. */
const MAX_ATTEMPTS = 32

const NO_CONTEXT: TraceContext = {}

/** One call as its spans tell it, which are made when it has ended. */
export class CallSpans implements CallTrace {
  readonly #exports: CallExports
  readonly #headers: IncomingHttpHeaders
  readonly #surface: 'llm' | 'mcp'
  /** ms since the epoch, and of the monotonic clock. */
  readonly #at: number
  readonly #began = performance.now()
  readonly #attempts: SpannedAttempt[] = []
  #parent: RemoteParent | null = null
  #link: RemoteParent | null = null
  #traceId = ''
  #spanId = ''
  #flags = 0
  #isSampled = false
  #keepsState = false
  /** The id of the attempt that begins next, once somebody was told of it. */
  #next: string | null = null

  constructor(exports: CallExports, surface: 'llm' | 'mcp', headers: IncomingHttpHeaders, at: number) {
    this.#exports = exports
    this.#surface = surface
    this.#headers = headers
    this.#at = at
  }

  get traceId(): string | null {
    return this.#traceId === '' ? null : this.#traceId
  }

  adopt(meta: UnknownRecord): void {
    if (!this.#exports.spans || this.#traceId !== '') return
    const ofMessage = parseTraceparent(meta.traceparent)
    const ofHeader = parseTraceparent(this.#headers.traceparent)
    this.#parent = ofMessage ?? ofHeader
    this.#link = ofMessage && ofHeader
    this.#keepsState = ofMessage === null && ofHeader !== null
    this.#traceId = this.#parent?.traceId ?? newTraceId(16)
    this.#spanId = newTraceId(8)
    const { isSampled, flags } = sampleTrace(this.#exports.sample, this.#traceId, this.#parent)
    this.#isSampled = isSampled
    this.#flags = flags
  }

  upcoming(): TraceContext {
    this.adopt(NO_META)
    if (!this.#exports.spans) return NO_CONTEXT
    this.#next ??= newTraceId(8)
    const traceparent = printTraceparent(this.#traceId, this.#next, this.#flags)
    // A state that belongs to another parent does not go on.
    return this.#keepsState ? { traceparent } : { traceparent, tracestate: undefined }
  }

  attempt(request: TracedRequest): TracedAttempt {
    const context = this.upcoming()
    const attempt: SpannedAttempt = {
      request,
      spanId: this.#next ?? '',
      beganMs: this.#now(),
      endedMs: null,
      status: null,
      reason: null,
    }
    this.#next = null
    if (this.#attempts.length < MAX_ATTEMPTS) this.#attempts.push(attempt)
    return {
      context,
      answered: (status) => {
        attempt.status = status
      },
      ended: (reason, status) => {
        attempt.endedMs ??= this.#now()
        attempt.reason ??= reason
        attempt.status ??= status ?? null
      },
    }
  }

  end(call: TracedCall): void {
    this.adopt(call.facts.message?.meta ?? NO_META)
    const { spans, logs, histograms } = this.#exports
    const endedMs = this.#now()
    const ended = { call, surface: this.#surface, beganMs: this.#at, endedMs, attempts: this.#attempts }
    const ids = { traceId: this.#traceId, spanId: this.#spanId, parentId: this.#parent?.spanId ?? null }
    if (spans && this.#isSampled) {
      spans.add(callSpan(ended, { ...ids, link: this.#link }))
      for (const attempt of this.#attempts) spans.add(attemptSpan(ended, attempt, ids))
    }
    if (histograms) recordFigures(histograms, ended)
    logs?.add(logRecord(ended, { ...ids, flags: this.#flags }))
  }

  /** ms since the epoch, by the clock that the call came by, and finer. */
  #now(): number {
    return this.#at + performance.now() - this.#began
  }
}

const NO_META: UnknownRecord = {}
