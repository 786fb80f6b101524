import { randomUUID } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import type { Registry } from 'prom-client'
import type { Agent } from 'undici'
import type { CallTrace } from '../../../plugins/call-trace.ts'
import { VERSION } from '../../boot/version.ts'
import { type CallExports, CallSpans } from './call-spans.ts'
import { keyValues } from './encode.ts'
import { CallHistograms } from './histograms.ts'
import { ExportLane, type LaneReporting, type MessageEnvelope, SendPause } from './lane.ts'
import type { TelemetryOptions } from './options.ts'
import { registryMetrics } from './registry.ts'
import { type SendTelemetry, telemetrySender } from './sender.ts'

/** Metrics are sent so often. ms. */
const METRICS_MS = 30_000
/** The time that telemetry may take to send the rest when it ends. ms. */
const CLOSE_MS = 2_000

/** The exports of calls to one collector. */
export interface CallTelemetry {
  /** Begins the trace of a call; null: the surface is not traced. */
  readonly begin: (surface: string, headers: IncomingHttpHeaders, at: number) => CallTrace | null
  /** Sends the rest, two seconds long at most. Never rejects. */
  readonly close: () => Promise<void>
}

export interface TelemetryDependencies {
  readonly agent: Agent
  readonly registry: Registry
  readonly report: LaneReporting
  readonly clock: () => number
}

export type OpenTelemetry = typeof openTelemetry

/** Opens the exports that the options name. */
export function openTelemetry(
  options: TelemetryOptions,
  { agent, registry, report, clock }: TelemetryDependencies,
): CallTelemetry {
  const { signals, sample } = options
  const send = telemetrySender(options, agent)
  const envelope = envelopeOf(options)
  const lane = (signal: 'traces' | 'logs', around: MessageEnvelope): ExportLane | null =>
    signals.includes(signal) ? new ExportLane(signal, around, send, report) : null
  const spans = lane('traces', envelope('resourceSpans', 'scopeSpans', 'spans'))
  const logs = lane('logs', envelope('resourceLogs', 'scopeLogs', 'logRecords'))
  const histograms = signals.includes('metrics') ? new CallHistograms() : null
  const around = envelope('resourceMetrics', 'scopeMetrics', 'metrics')
  const metrics = histograms && new MetricsTask({ histograms, registry, clock, send, around, report })
  const exports: CallExports = { sample, spans, logs, histograms }
  return {
    begin: (surface, headers, at) =>
      surface === 'llm' || surface === 'mcp' ? new CallSpans(exports, surface, headers, at) : null,
    close: async () => {
      await Promise.all([spans?.close(CLOSE_MS), logs?.close(CLOSE_MS), metrics?.close(CLOSE_MS)])
      await agent.destroy()
    },
  }
}

/** Makes what stands around the records of every message: whose they are. */
function envelopeOf({ resource }: TelemetryOptions) {
  const attributes = keyValues({
    'service.name': 'sallyport',
    'service.version': VERSION,
    'service.instance.id': randomUUID(),
    ...resource,
  })
  const said = JSON.stringify({ attributes })
  const scope = JSON.stringify({ name: 'sallyport', version: VERSION })
  return (whole: string, scoped: string, records: string): MessageEnvelope => ({
    head: `{"${whole}":[{"resource":${said},"${scoped}":[{"scope":${scope},"${records}":[`,
    tail: ']}]}]}',
  })
}

interface MetricsSource {
  readonly histograms: CallHistograms
  readonly registry: Registry
  readonly clock: () => number
  readonly send: SendTelemetry
  readonly around: MessageEnvelope
  readonly report: LaneReporting
}

/** Sends all metrics at intervals. They count from the start, so that a message which is lost costs nothing. */
class MetricsTask {
  readonly #source: MetricsSource
  readonly #since: number
  readonly #pause = new SendPause()
  readonly #stopping = new AbortController()
  readonly #timer: NodeJS.Timeout
  #isSending = false

  constructor(source: MetricsSource) {
    this.#source = source
    this.#since = source.clock()
    this.#timer = setInterval(() => void this.#run(), METRICS_MS).unref()
  }

  async close(ms: number): Promise<void> {
    clearInterval(this.#timer)
    const late = setTimeout(() => this.#stopping.abort(), ms)
    if (!this.#pause.hasFailed) await this.#run()
    clearTimeout(late)
    this.#stopping.abort()
  }

  /** Never rejects. */
  async #run(): Promise<void> {
    if (this.#isSending || this.#pause.leftMs > 0) return
    this.#isSending = true
    const { send, around, report } = this.#source
    const message = await this.#message().catch(() => null)
    const outcome =
      message === null
        ? ({ kind: 'refused', problem: 'the metrics could not be read' } as const)
        : await send('metrics', around.head + message + around.tail, this.#stopping.signal)
    this.#isSending = false
    if (outcome.kind === 'taken') {
      if (outcome.rejected > 0) report.dropped('metrics', outcome.rejected)
      if (this.#pause.hasFailed) report.failed('metrics', null)
      this.#pause.end()
      return
    }
    if (this.#stopping.signal.aborted) return
    report.failed('metrics', outcome.problem)
    this.#pause.begin(outcome.kind === 'later' ? outcome.afterMs : 0)
  }

  async #message(): Promise<string> {
    const { histograms, registry, clock } = this.#source
    const ofRegistry = await registryMetrics(registry, this.#since, clock)
    const all = [...ofRegistry, ...histograms.metrics(this.#since, clock())]
    return JSON.stringify(all).slice(1, -1)
  }
}
