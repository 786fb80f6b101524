import type { Logger } from 'pino'
import { HostNameCache } from '../../db/host-names/kept-names.ts'
import { egressAgent } from '../egress/agent.ts'
import type { GatewayMetrics } from '../telemetry/metrics.ts'
import type { TelemetryOptions } from '../telemetry/otlp/options.ts'
import type { CallTelemetry } from '../telemetry/otlp/telemetry.ts'

/** The time until a connection to a collector stands, and between two parts of its answer. ms. */
const COLLECTOR_MS = 10_000

interface TelemetrySwitchDependencies {
  readonly log: Logger
  readonly metrics: GatewayMetrics
  readonly clock: () => number
  readonly nameServers: readonly string[] | undefined
}

/** Holds the exports of telemetry in force: none until a file names them, and their code is not loaded before. */
export class TelemetrySwitch {
  current: CallTelemetry | null = null
  readonly #means: TelemetrySwitchDependencies
  #options: string | null = null
  #last: Promise<void> = Promise.resolve()

  constructor(means: TelemetrySwitchDependencies) {
    this.#means = means
  }

  /** Puts other options in force; the same ones change nothing. Resolves when calls are told by them. */
  use(options: TelemetryOptions | null): Promise<void> {
    this.#last = this.#last.then(() => this.#use(options))
    return this.#last
  }

  /** Sends the rest, two seconds long at most. */
  async close(): Promise<void> {
    await this.#last
    const { current } = this
    this.current = null
    await current?.close()
  }

  async #use(options: TelemetryOptions | null): Promise<void> {
    const text = options && JSON.stringify(options)
    if (text === this.#options) return
    this.#options = text
    const { current: before } = this
    this.current = options && (await this.#open(options))
    void before?.close()
  }

  async #open(options: TelemetryOptions): Promise<CallTelemetry> {
    const { openTelemetry } = await import('../telemetry/otlp/telemetry.ts')
    const { log, metrics, clock, nameServers: servers } = this.#means
    const agent = egressAgent({
      allowPrivate: true,
      connectMs: COLLECTOR_MS,
      answerMs: COLLECTOR_MS,
      resolve: new HostNameCache({ servers }).resolve,
    })
    const failing = new Set<string>()
    return openTelemetry(options, {
      agent,
      registry: metrics.registry,
      clock,
      report: {
        dropped: (signal, count) => metrics.telemetryDropped.inc({ signal }, count),
        failed: (signal, problem) => {
          if (problem !== null) metrics.telemetryFailures.inc({ signal })
          // A collector that is down for a day is one line, and a line when it is back.
          if (problem !== null && !failing.has(signal))
            log.warn({ signal, problem }, 'telemetry: the collector does not take it; it is tried again')
          if (problem === null) log.info({ signal }, 'telemetry: the collector takes it again')
          if (problem === null) failing.delete(signal)
          else failing.add(signal)
        },
      },
    })
  }
}
