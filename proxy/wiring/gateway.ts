import { hash } from 'node:crypto'
import type { DestinationStream, Logger } from 'pino'
import { databaseLocation } from '../../db/engine.ts'
import { oddDatabaseCas } from '../../db/postgres/protection.ts'
import { settleIssuers } from '../../db/principals/issuers.ts'
import { listSigningKeys } from '../../db/signing-keys.ts'
import type { JsonObject } from '../../db/support/json.ts'
import { serviceEntry } from '../../plugins/audit/entries.ts'
import type { EnvironmentVariables } from '../../plugins/operator-files/expand.ts'
import { type MonotonicClock, monotonicClock } from '../../plugins/secrets/throttle.ts'
import {
  backfillRecordV2,
  hadMarks,
  lackingMarks,
  recordBound,
  recordTrustedCas,
  restoreMarks,
} from '../admin/audit/record-version.ts'
import { brokenExpectationsOf, logBrokenExpectations } from '../admin/conditions/expected.ts'
import type { ArchiveTask } from '../archive/schedule.ts'
import { type DataDirectory, openDataDirectory } from '../boot/data-directory.ts'
import { trustExtraCas } from '../boot/extra-cas.ts'
import { makeDataDirectory } from '../boot/prepare-directory.ts'
import type { Settings } from '../boot/settings.ts'
import { exportDesk } from '../export/desk.ts'
import { type ControlSocket, openControl } from '../http/control-socket.ts'
import { readDescriptorLimit } from '../http/descriptors.ts'
import { openListeners } from '../http/listeners.ts'
import { createRequestListener } from '../http/serve.ts'
import { type ConnectionTimers, DEFAULT_TIMERS } from '../http/server.ts'
import { readPeopleCertificate } from '../people/certificate.ts'
import { refuseRollback } from '../proofs/anchors/rollback.ts'
import { lateAnchorsOf } from '../proofs/anchors/standing.ts'
import type { GatewayRouters } from '../routes.ts'
import { tlsMaterial } from '../tasks/follow-authority.ts'
import { recordAnonymousRefusals, SEAL_TASK, touchSeen, writeSummaries } from '../tasks/tend-ledger.ts'
import { createLogs, type GatewayLogs } from '../telemetry/log.ts'
import { canTap } from '../tls/socket-tap.ts'
import { archiveTask, startTasks } from './background.ts'
import { type Configuration, expectedOf, loadConfiguration, loadedDetail } from './configuration.ts'
import { archiveDeskOf } from './handlers.ts'
import { type ReloadConfiguration, reloader, type WriteServiceRow } from './reload.ts'
import { type GatewayServices, openServices } from './services.ts'
import { swappableConfiguration } from './swappable.ts'

export interface GatewayOptions {
  /** The environment that `${env:NAME}` in operators' files is read from. Default: this process's. */
  readonly env?: EnvironmentVariables
  readonly timers?: Partial<ConnectionTimers>
  /** The clock, in ms since the epoch. Default: the system's. */
  readonly clock?: () => number
  /** The monotonic clock, in ms. Default: the process's. */
  readonly monotonic?: MonotonicClock
  /** The destination of log lines. Default: standard output. */
  readonly logTo?: DestinationStream
  /**
   * True: no TLS listener, only the local operator's control socket. For the command line while no gateway
   * runs.
   */
  readonly controlOnly?: boolean
  /**
   * Why a log that is behind one of its anchors goes on all the same, under a new name; absent: it does not
   * (docs/operating.md#rollback).
   */
  readonly acceptRollback?: string
  /** The descriptors that the process may open; null: any number. Default: its limit. */
  readonly descriptorLimit?: number | null
  /** The name servers, `address` or `address:port`. Default: the machine's. */
  readonly nameServers?: readonly string[]
}

export interface Gateway {
  /** Base URLs; empty if only the control socket is open. */
  readonly url: string
  readonly adminUrl: string
  /** The port of the listener for people; null: it is closed. */
  readonly peoplePort: number | null
  /** The things that this start has made, in words for the operator. */
  readonly made: readonly string[]
  /** Tells whether an operator secret is stored or set in the environment. */
  readonly hasAdminSecret: () => Promise<boolean>
  /**
   * The code that sets the first operator secret at POST /v1/admin/setup; worth nothing once there is one.
   */
  readonly setupCode: string
  readonly configuration: () => Configuration
  /**
   * Reads the operators' files and the server certificate again. False: something was wrong, and all is as
   * before.
   */
  readonly reload: ReloadConfiguration
  /** Resolves once, if the ledger can never be written again. The process must then stop. */
  readonly failed: Promise<Error>
  /**
   * Drains and closes. `graceMs`: the time that streams may go on. Default: MCP_PROXY_SHUTDOWN_GRACE_S. A
   * second call ends the delay, and cuts them.
   */
  readonly close: (graceMs?: number, stop?: GatewayStop) => Promise<void>
}

interface GatewayStop {
  /** The cause, for the log. */
  readonly why?: string
  /** The time that it goes on serving, with `/ready` 503, until balancers have seen it. Default 0. */
  readonly delayMs?: number
}

/**
 * Starts the gateway. Rejects with one sentence for the operator if it cannot start; nothing is left open
 * then.
 */
export async function startGateway(settings: Settings, options: GatewayOptions = {}): Promise<Gateway> {
  const clock = options.clock ?? Date.now
  const logs = createLogs(settings.logLevel, options.logTo)
  const load = (): Promise<Configuration> => loadEffectiveConfiguration(settings, options.env ?? process.env)
  const configuration = await load()
  await makeDataDirectory(settings)
  logProtection(settings, logs, clock())
  for (const fault of trustExtraCas(options.env ?? process.env, clock())) logs.log.warn(fault)
  const control = await openControl(settings.dataDir)
  try {
    const dataDirectory = await openDataDirectory(settings, configuration.audit.queue_limit, clock())
    try {
      return await openGateway({ dataDirectory, control, configuration, load, logs, clock, options })
    } catch (error) {
      await dataDirectory.close()
      throw error
    }
  } catch (error) {
    await control.close()
    throw error
  }
}

const ALLOWS_STATE =
  'state: allow: any caller may name what another one has stored at this provider, such as its conversations'

/** Says how the connection to a database server is protected: plain text over a network is a warning. */
function logProtection({ databaseUrl }: Settings, { log }: GatewayLogs, at: number): void {
  const location = databaseLocation(databaseUrl)
  if (location.engine !== 'postgres') return
  const { sslmode, encrypted, local } = location.protection
  if (encrypted)
    log.info({ sslmode }, 'the database is reached by TLS, and its certificate verified as by verify-full')
  else if (local) log.info({ sslmode }, 'the database is on this machine, and reached in plain text')
  else
    log.warn({ sslmode }, 'the database is reached over the network in plain text: use sslmode=verify-full')
  for (const fault of oddDatabaseCas(databaseUrl, at)) log.warn(fault)
}

/**
 * Loads the operators' files and applies the environment's DPoP mode, which then counts in the digest too.
 */
async function loadEffectiveConfiguration(
  { pluginsDir, egressDpopMode }: Settings,
  env: EnvironmentVariables,
): Promise<Configuration> {
  const configuration = await loadConfiguration(pluginsDir, env)
  if (egressDpopMode === null || egressDpopMode === configuration.dpopMode) return configuration
  const digest = hash('sha256', `${configuration.digest} ${egressDpopMode}`)
  return { ...configuration, dpopMode: egressDpopMode, digest }
}

interface OpenOptions {
  readonly dataDirectory: DataDirectory
  readonly control: ControlSocket
  readonly configuration: Configuration
  readonly load: () => Promise<Configuration>
  readonly logs: GatewayLogs
  readonly clock: () => number
  readonly options: GatewayOptions
}

async function openGateway(opening: OpenOptions): Promise<Gateway> {
  const { dataDirectory, control, load, logs, clock, options } = opening
  const { settings } = dataDirectory
  const clocks = { clock, monotonic: options.monotonic ?? monotonicClock }
  const { env = process.env, nameServers, descriptorLimit = readDescriptorLimit() } = options
  const timers = { ...DEFAULT_TIMERS, ...options.timers }
  const around = { env, nameServers, descriptorLimit, roomMs: timers.roomMs }
  const services = await openServices(dataDirectory, logs, clocks, around)
  const { metrics, drain, budget, ledger } = services
  const inForce = swappableConfiguration(services, opening.configuration)
  services.mounted.reroute = inForce.remount
  services.mounted.sealIntervalMs = () => inForce.configuration().proofs.seal_interval_ms
  services.mounted.brokenExpectations = brokenExpectationsOf(dataDirectory.database, () =>
    expectedOf(inForce.configuration()),
  )
  services.mounted.configDigest = () => inForce.configuration().digest
  services.mounted.providers = () => inForce.configuration().llm.providers
  let archive: ArchiveTask | null = null
  services.mounted.archive = () => (archive ??= archiveTask(services, inForce.configuration))
  services.mounted.archiveAlarm = () => archiveDeskOf(services, inForce.configuration()).alarm(clock())
  services.mounted.exportLags = async () => {
    const desk = exportDesk(dataDirectory.database, inForce.configuration().exports)
    return (await desk.list(clock())).map(({ name, lag_rows: rows }) => [name, rows] as const)
  }
  services.mounted.lateAnchors = lateAnchorsOf(dataDirectory.database, inForce.configuration, clock)
  const digest = services.mounted.configDigest
  const note: WriteServiceRow = (action, detail, judgedBy = digest()) =>
    ledger.commit({ entries: [serviceEntry(action, 'success', detail, clock(), judgedBy)] })

  const serving = (place: keyof GatewayRouters) =>
    createRequestListener({
      mounted: inForce.mounted[place],
      ...logs,
      metrics,
      clock,
      writeStallMs: timers.writeStallMs,
      drain,
      budget,
      telemetry: services.telemetry,
      moves: dataDirectory.database.authority,
    })
  let stopTasks = (): Promise<unknown> => Promise.resolve(archive?.stop())
  const tls = await tlsMaterial(dataDirectory, clock())
  await checkAnchors(services, opening)
  await writeFirstRows(services, note, opening)
  await reportExpectations(services, opening.configuration)
  if (!options.controlOnly) {
    services.telemetry.use(opening.configuration.telemetry)
    const direct = settings.tlsDirect && canTap()
    if (settings.tlsDirect && !direct)
      logs.log.warn(
        'TLS cannot lie on the sockets of this Node: it goes through streams, at a tenth more of the CPU',
      )
    const handle = {
      direct,
      runtime: serving('runtime'),
      admin: serving('admin'),
      people: serving('people'),
      peopleTls: await readPeopleCertificate(settings),
      connections: services.descriptors.connectionLimits,
      onHandshakeFault: (reason: string) => metrics.handshakeFaults.inc({ reason }),
    }
    services.listeners.current = await openListeners(settings, tls, timers, handle)
    const { logFields, isScarce } = services.descriptors
    logs.log[isScarce ? 'warn' : 'info'](logFields, 'the connections that may be open at once')
    for (const { name: provider, state, auth } of opening.configuration.llm.providers)
      if (state === 'allow' && auth !== 'passthrough') logs.log.warn({ provider }, ALLOWS_STATE)
    stopTasks = startTasks(services, inForce.configuration)
  }
  control.serve(serving('control'))

  let closing: Promise<void> | null = null
  const close = (graceMs = settings.shutdownGraceS * 1000, stop: GatewayStop = {}): Promise<void> => {
    // A second call: the operator will not wait. Calls end now, still in order.
    if (closing) drain.terminateCalls()
    const stopChecks = (): Promise<void> => inForce.configuration().close()
    closing ??= shutdown({ services, control, note, digest, stopTasks, stopChecks, graceMs, ...stop })
    return closing
  }

  const { current: listeners } = services.listeners
  const { use: swap } = inForce
  const use = (configuration: Configuration): void => {
    swap(configuration)
    services.telemetry.use(configuration.telemetry)
    void reportExpectations(services, configuration)
  }
  return {
    url: listeners?.url ?? '',
    adminUrl: listeners?.adminUrl ?? '',
    peoplePort: listeners?.peoplePort ?? null,
    made: dataDirectory.made,
    hasAdminSecret: services.hasAdminSecret,
    setupCode: services.setup.code,
    configuration: inForce.configuration,
    reload: reloader({
      ...{ load, use, note, log: logs.log, metrics, clock, renew: services.renewCertificate },
      rejected: (rejection) => {
        services.mounted.rejected = rejection
      },
    }),
    failed: ledger.failed,
    close,
  }
}

/** Refuses to go on behind an anchor, unless the operator has said why it must. */
async function checkAnchors(
  services: GatewayServices,
  { configuration, options }: OpenOptions,
): Promise<void> {
  const { dataDirectory, logKeys: keys, clock, logs } = services
  const { database, names: named } = dataDirectory
  const { acceptRollback: accepted = null } = options
  const origin = await database.alone(() =>
    refuseRollback({
      ...{ database, keys, accepted, named, anchors: configuration.proofs.anchors },
      entry: (detail) => ({
        ...serviceEntry(
          'audit.rollback_accepted',
          'success',
          { ...detail, anchors: [...detail.anchors], reason: accepted ?? '', via: 'socket' },
          clock(),
          configuration.digest,
        ),
        principal_id: `socket:${process.getuid?.() ?? 'unknown'}`,
        principal_type: 'operator',
      }),
    }),
  )
  if (origin !== null) logs.log.warn({ origin, reason: accepted }, 'a log of a new name begins')
}

/** Says which sentences of the files do not hold. */
function reportExpectations(
  { dataDirectory: { database }, logs: { log } }: GatewayServices,
  configuration: Configuration,
): Promise<void> {
  const { file = '' } = configuration.files.find(({ plugin }) => plugin === 'expect') ?? {}
  return logBrokenExpectations(expectedOf(configuration), file, { database, log })
}

/** Says which keys sign tokens, and that decisions name the CA by which an SVID is known (docs/ledger.md#replay). */
async function startDetail({ dataDirectory: { database } }: GatewayServices): Promise<JsonObject> {
  const keys = await listSigningKeys(database, 0)
  const isRecorded = (await lackingMarks(database)).length === 0
  return {
    node: process.versions.node,
    names_anchors: true,
    ...(isRecorded && { recorded: true }),
    signing_keys: keys.map(({ kid }) => kid),
  }
}

/** Writes the first rows of a run, and those that an earlier version left out. */
async function writeFirstRows(
  services: GatewayServices,
  note: WriteServiceRow,
  opening: OpenOptions,
): Promise<void> {
  const { ledger } = services
  const { configuration } = opening
  const { controlOnly = false } = opening.options
  // A ledger begins with the start of a service.
  if (controlOnly && ledger.head === null)
    await note('service.started', { ...(await startDetail(services)), control_only: true })
  if (!controlOnly) await beginServing(services, note, opening)
  const { clock, dataDirectory, logs } = services
  const { database } = dataDirectory
  const configDigest = configuration.digest
  const { authority } = dataDirectory
  const rows = await database.alone(async () => {
    // Before the rows that tell are archived. While a CA is replaced the next preparation does it.
    const settled = authority.rotation ? [] : await settleIssuers(database, authority.digest)
    if (settled.length > 0) await ledger.commit({ statements: settled, entries: [] })
    const recording = { ...services, database, configDigest, at: clock() }
    const lacking = await lackingMarks(database)
    // What the tables hold now is not written down: somebody may have edited that too.
    if (lacking.length > 0 && (await hadMarks(database))) {
      for (const mark of lacking) services.editedTexts.note(`the setting ${mark}, which was gone`, clock())
      await ledger.commit({ statements: restoreMarks(database, lacking, clock()), entries: [] })
      return 0
    }
    return (
      (await backfillRecordV2(recording)) +
      (await recordTrustedCas(recording)) +
      (await recordBound(recording))
    )
  })
  if (rows > 0) logs.log.info({ rows }, 'what is older than this version of the record was written down')
}

/** Writes the outcomes of calls that an earlier run left open, then the start, and the rules from here on. */
async function beginServing(
  services: GatewayServices,
  note: WriteServiceRow,
  { configuration }: OpenOptions,
): Promise<void> {
  const { ledger, clock, logs } = services
  const recovered = await ledger.recover(clock(), configuration.digest)
  if (recovered > 0) {
    logs.log.warn({ recovered }, 'calls of an earlier run that never ended were given the outcome unknown')
  }
  await note('service.started', await startDetail(services))
  // Before it judges anything: a decision under its digest can be computed once more.
  await note('config.loaded', loadedDetail(configuration))
}

interface ShutdownOptions extends GatewayStop {
  readonly services: GatewayServices
  readonly control: ControlSocket
  readonly note: WriteServiceRow
  readonly digest: () => string
  /** Ends the background tasks; resolves when none needs database or ledger any more. */
  readonly stopTasks: () => Promise<unknown>
  /** Releases the resources of the configuration in force. */
  readonly stopChecks: () => Promise<void>
  /** The time that calls under way may go on. ms. */
  readonly graceMs: number
}

/**
 * Stops in order (docs/threats.md#f-30): balancers get the time to see it, no new request is accepted, calls under way end or are cut when
 * their grace is over, every outcome is written, and only then are ledger and database closed. Never rejects
 * for a ledger that fails meanwhile.
 */
async function shutdown(options: ShutdownOptions): Promise<void> {
  const { services, control, note, digest, stopTasks, stopChecks, graceMs } = options
  const { dataDirectory, ledger, outcomes, anonymous, summaries, drain, upstream, mcp, clock, logs } =
    services
  const { current: listeners } = services.listeners
  const { why = 'close', delayMs = 0 } = options
  const begun = performance.now()
  const tell = (fields: object, message: string): void => {
    if (listeners) logs.log.info({ why, calls: drain.calls.count, ...fields }, message)
  }
  tell({ delay_ms: delayMs, grace_ms: graceMs }, 'stopping: /ready is 503, and calls are taken for the delay')
  await drain.delay(delayMs)
  // They end by nothing that they wait for, and would keep the others from being waited for.
  options.services.followers.close()
  await stopTasks()
  const closed = listeners?.close()
  tell({ grace_ms: graceMs }, 'stopping: no new calls are taken, and those under way are waited for')
  await drain.finish(graceMs)
  if (drain.cut > 0)
    logs.log.warn({ calls: drain.cut }, 'stopping: calls were cut off, each with `drained` in its line')
  await outcomes.flushed()
  listeners?.destroy()
  await closed
  await control.close()
  // A request whose head was still in transit may have come after all; from here on none can.
  await drain.finish(0)
  await outcomes.flushed()
  outcomes.retry()
  await outcomes.flushed()
  const refused = { ledger, anonymous, configDigest: digest, clock }
  await recordAnonymousRefusals(refused).catch(logWriteFailure(logs.log))
  await writeSummaries({ ledger, summaries }, true).catch(logWriteFailure(logs.log))
  await touchSeen({ ...services, database: dataDirectory.database }).catch(logWriteFailure(logs.log))
  await services.states.flush()
  if (listeners) await note('service.stopped', {}).catch(logWriteFailure(logs.log))
  // The last rows too: all of them are sealed at rest.
  if (dataDirectory.database.leads(SEAL_TASK)) await services.sealer.seal().catch(logWriteFailure(logs.log))
  await stopChecks()
  services.providerKeys.close()
  upstream.close()
  await mcp.close()
  await services.telemetry.close()
  await dataDirectory.close()
  tell({ cut: drain.cut, ms: Math.round(performance.now() - begun) }, 'stopped')
  await logs.flush()
}

const logWriteFailure =
  (log: Logger) =>
  (error: unknown): void =>
    log.error({ err: error }, 'the ledger could not be written while stopping')
