import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import { VERSION } from '../boot/version.ts'
import { ProviderFigures } from './provider-figures.ts'

/** The service's metrics, in a registry of their own. */
export interface GatewayMetrics {
  readonly registry: Registry
  readonly requests: Counter<'route' | 'method' | 'status'>
  readonly refusals: Counter<'reason'>
  readonly summarised: Counter
  readonly latency: Histogram<'route'>
  readonly tokens: Counter<'provider' | 'direction'>
  readonly tokensUnknown: Counter<'provider' | 'reason'>
  readonly llmCalls: Counter<'provider' | 'result'>
  /** Requests to providers, their times, and the figures of the last hour and day. */
  readonly providers: ProviderFigures
  readonly modelMismatches: Counter<'provider'>
  readonly mcpCalls: Counter<'resource' | 'result'>
  readonly reloads: Counter<'result'>
  readonly faults: Counter<'step'>
  readonly handshakeFaults: Counter<'reason'>
  readonly fullConnections: Counter<'outcome'>
  readonly secretUses: Counter
  readonly shadowVerdicts: Counter<'check' | 'verdict'>
  readonly candidateVerdicts: Counter<'result'>
  readonly overBudget: Counter
  readonly waitedForBudget: Counter
  /** Anchors of the ledger that could not take a checkpoint, by the anchor. */
  readonly anchorFailures: Counter<'anchor'>
}

interface GaugeSources {
  readonly waiting: () => number
  readonly owed: () => number
  readonly held: () => number
  readonly unsealed: () => Promise<number>
  readonly sealingStopped: () => boolean
  readonly lateAnchors: () => Promise<number>
  readonly brokenExpectations: () => Promise<number>
  readonly quarantined: () => Promise<number>
  readonly unreadable: () => Promise<number>
  readonly unreadBundles: () => number
  /** The bytes that are free for the database, and those kept for allowed rows. */
  readonly diskFree: () => number
  readonly diskReserve: () => number
  /** True if the last write of the ledger failed. */
  readonly failing: () => boolean
  readonly lostLines: () => number
  readonly reachable: () => Promise<boolean>
  readonly listening: () => boolean
  /** Null: not known. */
  readonly descriptors: {
    readonly limit: number | null
    readonly open: number | null
    readonly connections: number
    readonly mostConnections: number
  }
  /** The ends of the service's own certificates, by name. Seconds since the epoch. */
  readonly certificates: () => Promise<ReadonlyMap<string, number>>
}

let ofTheProcess: Registry | null = null

/** Node's own metrics. Their observers live as long as the process, and must not keep a gateway that is closed. */
function metricsOfTheProcess(): Registry {
  if (ofTheProcess === null) {
    ofTheProcess = new Registry()
    collectDefaultMetrics({ register: ofTheProcess })
  }
  return ofTheProcess
}

export function createMetrics(ask: GaugeSources): GatewayMetrics {
  const registry = Registry.merge([metricsOfTheProcess()])
  const registers = [registry]
  gauge(registry, 'sallyport_audit_waiting_rows', 'Rows waiting for the audit ledger.', ask.waiting)
  gauge(registry, 'sallyport_audit_owed_outcomes', 'Outcome rows the ledger has not taken yet.', ask.owed)
  gauge(
    registry,
    'sallyport_audit_unsealed_rows',
    'Rows of the audit ledger that no checkpoint covers yet.',
    ask.unsealed,
  )
  gauge(
    registry,
    'sallyport_audit_sealing_stopped',
    '1 while rows of the audit ledger wait for a checkpoint and none is signed.',
    () => Number(ask.sealingStopped()),
  )
  gauge(
    registry,
    'sallyport_audit_anchors_late',
    'Anchors that have lacked a checkpoint for more than two minutes.',
    ask.lateAnchors,
  )
  gauge(
    registry,
    'sallyport_expectations_broken',
    'Expectations of 90-expect.yaml that do not hold.',
    ask.brokenExpectations,
  )
  gauge(
    registry,
    'sallyport_mcp_tools_quarantined',
    'MCP tools whose changed definition waits for approval.',
    ask.quarantined,
  )
  gauge(
    registry,
    'sallyport_mcp_resources_unreadable',
    'Enabled MCP servers whose tools could not be read.',
    ask.unreadable,
  )
  gauge(
    registry,
    'sallyport_trust_bundles_unreadable',
    'Followed trust bundles whose last reading failed.',
    ask.unreadBundles,
  )
  gauge(registry, 'sallyport_disk_free_bytes', 'Bytes free for the database.', ask.diskFree)
  gauge(
    registry,
    'sallyport_disk_reserve_bytes',
    'Bytes reserved for what is allowed: with less, refusals have no rows of their own.',
    ask.diskReserve,
  )
  const failing = () => Number(ask.failing())
  gauge(registry, 'sallyport_audit_failing', '1 while the audit ledger cannot be written.', failing)
  const reachable = async () => Number(await ask.reachable())
  gauge(registry, 'sallyport_database_reachable', '1 if the database answers, else 0.', reachable)
  const listening = () => Number(ask.listening())
  const heard = '1 if changes of other gateways are heard of, else 0.'
  gauge(registry, 'sallyport_notices_listening', heard, listening)
  descriptorGauges(registry, ask.descriptors)
  certificateGauge(registry, ask.certificates)
  lostLinesCounter(registry, ask.lostLines)
  gauge(registry, 'sallyport_held_bytes', 'Bytes of bodies and answers that calls hold.', ask.held)
  buildInfo(registry)
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
    summarised: new Counter({
      name: 'sallyport_refusals_summarised_total',
      help: 'Refusals of known principals that have no audit row of their own.',
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
    tokensUnknown: new Counter({
      name: 'sallyport_tokens_unknown_total',
      help: 'Answers of providers whose tokens are not all known, by reason.',
      labelNames: ['provider', 'reason'],
      registers,
    }),
    llmCalls: new Counter({
      name: 'sallyport_llm_calls_total',
      help: 'LLM calls that a provider answered, by provider and how they ended.',
      labelNames: ['provider', 'result'],
      registers,
    }),
    providers: new ProviderFigures(registers),
    modelMismatches: new Counter({
      name: 'sallyport_llm_model_mismatches_total',
      help: 'Answers of a provider by another model than it was asked for.',
      labelNames: ['provider'],
      registers,
    }),
    mcpCalls: new Counter({
      name: 'sallyport_mcp_calls_total',
      help: 'MCP calls that were allowed and passed on, by resource and how they ended.',
      labelNames: ['resource', 'result'],
      registers,
    }),
    reloads: new Counter({
      name: 'sallyport_config_reloads_total',
      help: 'Reloads of the plugin configuration.',
      labelNames: ['result'],
      registers,
    }),
    faults: new Counter({
      name: 'sallyport_faults_total',
      help: 'Steps after an answer (report, settle, count, log, or a plugin by name) that threw.',
      labelNames: ['step'],
      registers,
    }),
    handshakeFaults: new Counter({
      name: 'sallyport_handshake_faults_total',
      help: 'TLS handshakes that were not completed, by reason.',
      labelNames: ['reason'],
      registers,
    }),
    fullConnections: new Counter({
      name: 'sallyport_connections_full_total',
      help: 'Connections that came when all places were taken: an idle one was closed to make room, or the new one was refused.',
      labelNames: ['outcome'],
      registers,
    }),
    secretUses: new Counter({
      name: 'sallyport_admin_secret_uses_total',
      help: 'Requests that were authenticated by the operator secret.',
      registers,
    }),
    shadowVerdicts: new Counter({
      name: 'sallyport_shadow_verdicts_total',
      help: 'Calls that were judged by a check that only watches, by check and verdict.',
      labelNames: ['check', 'verdict'],
      registers,
    }),
    candidateVerdicts: new Counter({
      name: 'sallyport_candidate_verdicts_total',
      help: 'Calls of principals that have a candidate set, by what it would have changed.',
      labelNames: ['result'],
      registers,
    }),
    anchorFailures: new Counter({
      name: 'sallyport_audit_anchor_failures_total',
      help: 'Checkpoints that an anchor of the audit ledger did not take.',
      labelNames: ['anchor'],
      registers,
    }),
    overBudget: new Counter({
      name: 'sallyport_held_refusals_total',
      help: 'Bodies and answers that were refused because too many bytes are held.',
      registers,
    }),
    waitedForBudget: new Counter({
      name: 'sallyport_held_waits_total',
      help: 'Bodies and answers that waited unread until others were done.',
      registers,
    }),
  }
}

function buildInfo(registry: Registry): void {
  const made = new Gauge({
    name: 'sallyport_build_info',
    help: 'Always 1: the version of the gateway, and of Node.js.',
    labelNames: ['version', 'node'],
    registers: [registry],
  })
  made.set({ version: VERSION, node: process.versions.node }, 1)
}

/** Registers a gauge. If its value cannot be had, only its sample is missing. */
function gauge(registry: Registry, name: string, help: string, ask: () => number | Promise<number>): void {
  const made = new Gauge({
    name,
    help,
    registers: [],
    async collect() {
      try {
        this.set(await ask())
      } catch {
        this.remove()
      }
    },
  })
  registry.registerMetric(made)
}

/** Adds the gauges of descriptors and connections. An unknown number has no sample. */
function descriptorGauges(registry: Registry, ask: GaugeSources['descriptors']): void {
  const known = (value: number | null): number => {
    if (value === null || value === Infinity) throw new Error('there is no such number')
    return value
  }
  const add = (name: string, help: string, value: () => number | null): void =>
    gauge(registry, `sallyport_${name}`, help, () => known(value()))
  add('descriptors_open', 'Descriptors that the process has open, also while none is left.', () => ask.open)
  add('descriptors_limit', 'Descriptors that the process may open (RLIMIT_NOFILE).', () => ask.limit)
  add('connections_open', "Clients' connections that are open.", () => ask.connections)
  add('connections_limit', "Clients' connections that may be open at once.", () => ask.mostConnections)
}

function certificateGauge(registry: Registry, ask: GaugeSources['certificates']): void {
  const made = new Gauge({
    name: 'sallyport_certificate_not_after_seconds',
    help: "The end of the service's own certificates, in seconds since the epoch.",
    labelNames: ['certificate'],
    registers: [],
    async collect() {
      this.reset()
      for (const [certificate, seconds] of await ask()) this.set({ certificate }, seconds)
    },
  })
  registry.registerMetric(made)
}

function lostLinesCounter(registry: Registry, lost: () => number): void {
  const made = new Counter({
    name: 'sallyport_log_lines_lost_total',
    help: 'Lines of the log that standard output did not take.',
    registers: [],
    collect() {
      this.reset()
      this.inc(lost())
    },
  })
  registry.registerMetric(made)
}
