import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'

/** The service's own figures, in a registry of its own so that two gateways in one process do not mix theirs. */
export interface Metrics {
  readonly registry: Registry
  readonly requests: Counter<'route' | 'method' | 'status'>
  readonly refusals: Counter<'reason'>
  readonly latency: Histogram<'route'>
  readonly tokens: Counter<'provider' | 'direction'>
  readonly reloads: Counter<'result'>
}

/** `waiting` is asked at each scrape: how many rows the ledger has in its line; `owed`: outcome rows it would not take. */
export function createMetrics(ask: { waiting: () => number; owed: () => number }): Metrics {
  const registry = new Registry()
  const registers = [registry]
  collectDefaultMetrics({ register: registry })
  gauge(registry, 'sallyport_audit_waiting_rows', 'Rows waiting for the audit ledger.', ask.waiting)
  gauge(registry, 'sallyport_audit_owed_outcomes', 'Outcome rows the ledger has not taken yet.', ask.owed)
  return {
    registry,
    requests: new Counter({
      name: 'sallyport_requests_total',
      help: 'Requests answered, by route.',
      labelNames: ['route', 'method', 'status'],
      registers,
    }),
    refusals: new Counter({
      name: 'sallyport_refusals_total',
      help: 'Requests refused, by reason.',
      labelNames: ['reason'],
      registers,
    }),
    latency: new Histogram({
      name: 'sallyport_request_seconds',
      help: 'From the arrival of a request to the end of its answer.',
      labelNames: ['route'],
      buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120],
      registers,
    }),
    tokens: new Counter({
      name: 'sallyport_tokens_total',
      help: 'Tokens that providers reported.',
      labelNames: ['provider', 'direction'],
      registers,
    }),
    reloads: new Counter({
      name: 'sallyport_config_reloads_total',
      help: 'Reloads of the plugin configuration.',
      labelNames: ['result'],
      registers,
    }),
  }
}

function gauge(registry: Registry, name: string, help: string, ask: () => number): void {
  const made = new Gauge({
    name,
    help,
    registers: [],
    collect() {
      this.set(ask())
    },
  })
  registry.registerMetric(made)
}
