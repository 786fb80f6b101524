import type { Logger } from 'pino'
import { HostNameCache } from '../../db/host-names/kept-names.ts'
import { egressAgent } from '../egress/agent.ts'
import type { GatewayMetrics } from '../telemetry/metrics.ts'
import type { LaneReporting } from '../telemetry/otlp/lane.ts'
import type { TelemetryOptions } from '../telemetry/otlp/options.ts'
import type { CallTelemetry, OpenTelemetry } from '../telemetry/otlp/telemetry.ts'

/** The time until a connection to a collector stands, and between two parts of its answer. ms. */
const COLLECTOR_MS = 10_000

interface TelemetrySwitchDependencies {
  readonly log: Logger
  readonly metrics: GatewayMetrics
  readonly clock: () => number
  readonly nameServers: readonly string[] | undefined
}

/** The options of a file, and what opens them: code that is loaded for no other reason. */
export interface ConfiguredTelemetry {
  readonly options: TelemetryOptions
  readonly open: OpenTelemetry
}

/** Holds the exports of telemetry in force: none until a file names a collector. */
export class TelemetrySwitch {
  current: CallTelemetry | null = null
  readonly #means: TelemetrySwitchDependencies
  #options: string | null = null

  constructor(means: TelemetrySwitchDependencies) {
    this.#means = means
  }

  /** Puts other options in force; the same ones change nothing. What waits for the former ones is sent meanwhile. */
  use(configured: ConfiguredTelemetry | null): void {
    const text = configured && JSON.stringify(configured.options)
    if (text === this.#options) return
    this.#options = text
    const { current: before } = this
    this.current = configured && this.#open(configured)
    void before?.close()
  }

  /** Sends the rest, two seconds long at most. */
  async close(): Promise<void> {
    const { current } = this
    this.current = null
    await current?.close()
  }

  #open({ options, open }: ConfiguredTelemetry): CallTelemetry {
    const { metrics, clock, nameServers: servers } = this.#means
    const agent = egressAgent({
      allowPrivate: true,
      connectMs: COLLECTOR_MS,
      answerMs: COLLECTOR_MS,
      resolve: new HostNameCache({ servers }).resolve,
    })
    return open(options, { agent, registry: metrics.registry, clock, report: this.#report() })
  }

  /** A collector that is down for a day is one line, and a line when it is back. */
  #report(): LaneReporting {
    const { log, metrics } = this.#means
    const failing = new Set<string>()
    return {
      dropped: (signal, count) => metrics.telemetryDropped.inc({ signal }, count),
      failed: (signal, problem) => {
        if (problem === null) {
          failing.delete(signal)
          log.info({ signal }, 'telemetry: the collector takes it again')
          return
        }
        metrics.telemetryFailures.inc({ signal })
        if (!failing.has(signal))
          log.warn({ signal, problem }, 'telemetry: the collector does not take it; it is tried again')
        failing.add(signal)
      },
    }
  }
}
