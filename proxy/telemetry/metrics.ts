import { X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import type { DataDirectory } from '../boot/data-directory.ts'
import { VERSION } from '../boot/version.ts'
import { LimitFigures, type ReadLimitFigures } from './limit-figures.ts'
import { ProviderFigures } from './provider-figures.ts'

/** Reads when the CAs' certificates end, and the server's on the disk, in seconds since the epoch. */
export async function certificateEnds({
  authority,
  settings,
}: Pick<DataDirectory, 'authority' | 'settings'>): Promise<ReadonlyMap<string, number>> {
  const server = await readFile(join(settings.dataDir, 'ca', 'server.crt')).catch(() => null)
  const { rootPem, intermediatePem, rotation } = authority
  const name = rotation?.phase === 'issuing' ? 'old' : 'next'
  const all = {
    ...{ root: rootPem, intermediate: intermediatePem },
    ...(rotation && {
      [`${name}_root`]: rotation.other.rootPem,
      [`${name}_intermediate`]: rotation.other.intermediatePem,
    }),
    ...(server && { server }),
  }
  return new Map(
    Object.entries(all).map(([name, pem]) => [name, new X509Certificate(pem).validToDate.getTime() / 1000]),
  )
}

/** The service's metrics, in a registry of their own. */
export type GatewayMetrics = ReturnType<typeof createMetrics>

interface GaugeSources {
  readonly waiting: () => number
  readonly owed: () => number
  readonly held: () => number
  readonly unsealed: () => Promise<number>
  readonly sealingStopped: () => boolean
  readonly lateAnchors: () => Promise<number>
  readonly brokenExpectations: () => Promise<number>
  readonly archiveAlarm: () => Promise<{
    readonly overdue: boolean
    readonly last: { readonly problem: string | null } | null
  }>
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
  /** The state of the breaker of each provider, by name. */
  readonly providerStates: () => readonly (readonly [string, keyof typeof PROVIDER_STATES])[]
  /** The rows that each sink of 85-export.yaml has not taken, by name. */
  readonly exportLags: () => Promise<readonly (readonly [string, number])[]>
  readonly limits: ReadLimitFigures
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

export function createMetrics(ask: GaugeSources) {
  const registry = Registry.merge([metricsOfTheProcess()])
  const registers = [registry]
  gauges(registry, {
    audit_waiting_rows: ['Rows waiting for the audit ledger.', ask.waiting],
    audit_owed_outcomes: ['Outcome rows the ledger has not taken yet.', ask.owed],
    audit_unsealed_rows: ['Rows of the audit ledger that no checkpoint covers yet.', ask.unsealed],
    audit_sealing_stopped: [
      '1 while rows of the audit ledger wait for a checkpoint and none is signed.',
      ask.sealingStopped,
    ],
    audit_anchors_late: ['Anchors that have lacked a checkpoint for more than two minutes.', ask.lateAnchors],
    archive_overdue: [
      '1 while rows that are a day older than `keep` are in the database.',
      async () => (await ask.archiveAlarm()).overdue,
    ],
    archive_failing: [
      '1 if the last work on the archive failed.',
      async () => typeof (await ask.archiveAlarm()).last?.problem === 'string',
    ],
    expectations_broken: ['Expectations of 90-expect.yaml that do not hold.', ask.brokenExpectations],
    mcp_tools_quarantined: ['MCP tools whose changed definition waits for approval.', ask.quarantined],
    mcp_resources_unreadable: ['Enabled MCP servers whose tools could not be read.', ask.unreadable],
    trust_bundles_unreadable: ['Followed trust bundles whose last reading failed.', ask.unreadBundles],
    disk_free_bytes: ['Bytes free for the database.', ask.diskFree],
    disk_reserve_bytes: [
      'Bytes reserved for what is allowed: with less, refusals have no rows of their own.',
      ask.diskReserve,
    ],
    audit_failing: ['1 while the audit ledger cannot be written.', ask.failing],
    database_reachable: ['1 if the database answers, else 0.', ask.reachable],
    notices_listening: ['1 if changes of other gateways are heard of, else 0.', ask.listening],
    descriptors_open: [
      'Descriptors that the process has open, also while none is left.',
      () => ask.descriptors.open,
    ],
    descriptors_limit: [
      'Descriptors that the process may open (RLIMIT_NOFILE).',
      () => ask.descriptors.limit,
    ],
    connections_open: ["Clients' connections that are open.", () => ask.descriptors.connections],
    connections_limit: [
      "Clients' connections that may be open at once.",
      () => ask.descriptors.mostConnections,
    ],
  })
  certificateGauge(registry, ask.certificates)
  providerGauge(registry, ask.providerStates)
  exportGauge(registry, ask.exportLags)
  lostLinesCounter(registry, ask.lostLines)
  gauges(registry, { held_bytes: ['Bytes of bodies and answers that calls hold.', ask.held] })
  buildInfo(registry)
  const counter = <Label extends string>(name: string, help: string, ...labelNames: Label[]) =>
    new Counter({ name: `sallyport_${name}`, help, labelNames, registers })
  return {
    registry,
    requests: counter('requests_total', 'Requests answered, by route.', 'route', 'method', 'status'),
    refusals: counter('refusals_total', 'Requests refused, by reason.', 'reason'),
    summarised: counter(
      'refusals_summarised_total',
      'Refusals of known principals that have no audit row of their own.',
    ),
    latency: new Histogram({
      name: 'sallyport_request_seconds',
      help: 'From the arrival of a request to the end of its answer.',
      labelNames: ['route'],
      buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120],
      registers,
    }),
    tokens: counter('tokens_total', 'Tokens that providers reported.', 'provider', 'direction'),
    tokenParts: counter(
      'token_parts_total',
      'The parts of these tokens that providers reported: cached, written to a cache, reasoning, audio, images.',
      'provider',
      'part',
    ),
    serverTools: counter(
      'server_tools_total',
      'Uses of tools that providers ran themselves, web searches for example.',
      'provider',
      'tool',
    ),
    translated: counter(
      'translated_total',
      'Calls that went to a provider in another API than they came in.',
      'from',
      'to',
    ),
    translationRefused: counter(
      'translation_refused_total',
      'Calls that a provider could not be told all of, by what was lost.',
      'loss',
    ),
    cost: counter(
      'cost_microusd_total',
      'Costs of calls in millionths of a US dollar, as the process that leads counts them.',
      'provider',
    ),
    unpriced: counter('unpriced_total', 'Calls without a price, counted likewise.', 'provider'),
    tokensUnknown: counter(
      'tokens_unknown_total',
      'Answers of providers whose tokens are not all known, by reason.',
      'provider',
      'reason',
    ),
    llmCalls: counter(
      'llm_calls_total',
      'LLM calls that a provider answered, by provider and how they ended.',
      'provider',
      'result',
    ),
    limits: new LimitFigures(registers, ask.limits),
    /** Requests to providers, their times, and the figures of the last hour and day. */
    providers: new ProviderFigures(registers),
    modelMismatches: counter(
      'llm_model_mismatches_total',
      'Answers of a provider by another model than it was asked for.',
      'provider',
    ),
    mcpCalls: counter(
      'mcp_calls_total',
      'MCP calls that were allowed and passed on, by resource and how they ended.',
      'resource',
      'result',
    ),
    reloads: counter('config_reloads_total', 'Reloads of the plugin configuration.', 'result'),
    faults: counter(
      'faults_total',
      'Steps after an answer (report, settle, count, log, or a plugin by name) that threw.',
      'step',
    ),
    handshakeFaults: counter(
      'handshake_faults_total',
      'TLS handshakes that were not completed, by reason.',
      'reason',
    ),
    fullConnections: counter(
      'connections_full_total',
      'Connections that came when all places were taken: an idle one was closed to make room, or the new one was refused.',
      'outcome',
    ),
    secretUses: counter(
      'admin_secret_uses_total',
      'Requests that were authenticated by the operator secret.',
    ),
    shadowVerdicts: counter(
      'shadow_verdicts_total',
      'Calls that were judged by a check that only watches, by check and verdict.',
      'check',
      'verdict',
    ),
    contentFindings: counter(
      'content_findings_total',
      'What a check of content has found, by rule, kind of place and verdict on the message.',
      'rule',
      'place',
      'verdict',
    ),
    candidateVerdicts: counter(
      'candidate_verdicts_total',
      'Calls of principals that have a candidate set, by what it would have changed.',
      'result',
    ),
    anchorFailures: counter(
      'audit_anchor_failures_total',
      'Checkpoints that an anchor of the audit ledger did not take.',
      'anchor',
    ),
    telemetryDropped: counter(
      'telemetry_dropped_total',
      'Spans, log records and points of metrics that no collector has kept.',
      'signal',
    ),
    telemetryFailures: counter(
      'telemetry_failures_total',
      'Requests to the collector that it did not take.',
      'signal',
    ),
    exportFailures: counter(
      'export_failures_total',
      'Pages of rows that a sink of 85-export.yaml did not take.',
      'sink',
    ),
    overBudget: counter(
      'held_refusals_total',
      'Bodies and answers that were refused because too many bytes are held.',
    ),
    waitedForBudget: counter(
      'held_waits_total',
      'Bodies and answers that waited unread until others were done.',
    ),
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

type GaugeRow = readonly [help: string, ask: () => GaugeValue | Promise<GaugeValue>]
type GaugeValue = number | boolean | null

/** Registers gauges by their names. One whose value is not known, or cannot be had, has no sample. */
function gauges(registry: Registry, rows: Readonly<Record<string, GaugeRow>>): void {
  for (const [name, [help, ask]] of Object.entries(rows)) {
    const made = new Gauge({
      name: `sallyport_${name}`,
      help,
      registers: [],
      async collect() {
        const value = await Promise.try(ask).catch(() => null)
        if (value === null || value === Infinity) this.remove()
        else this.set(Number(value))
      },
    })
    registry.registerMetric(made)
  }
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

/** The values of `sallyport_provider_state`; a breaker that is off never opens. */
const PROVIDER_STATES = { off: 0, closed: 0, half_open: 1, open: 2 } as const

function providerGauge(registry: Registry, ask: GaugeSources['providerStates']): void {
  const made = new Gauge({
    name: 'sallyport_provider_state',
    help: 'Providers: 0 asked, 1 tried again, 2 left alone.',
    labelNames: ['provider'],
    registers: [],
    collect() {
      this.reset()
      for (const [provider, state] of ask()) this.set({ provider }, PROVIDER_STATES[state])
    },
  })
  registry.registerMetric(made)
}

function exportGauge(registry: Registry, ask: GaugeSources['exportLags']): void {
  const made = new Gauge({
    name: 'sallyport_export_lag_rows',
    help: 'Rows that a sink of 85-export.yaml has not taken yet.',
    labelNames: ['sink'],
    registers: [],
    async collect() {
      const lags = await ask().catch(() => [])
      this.reset()
      for (const [sink, rows] of lags) this.set({ sink }, rows)
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
