import { hash } from 'node:crypto'
import type { DestinationStream } from 'pino'
import { serviceEntry } from '../plugins/audit/anonymous.ts'
import type { Environment } from '../plugins/operator-files/expand.ts'
import { type Configuration, loadConfiguration } from './configuration.ts'
import { type DataDirectory, makeDataDirectory, openDataDirectory } from './data-directory.ts'
import { doors, type Routers } from './doors.ts'
import { type FederationTask, federationTask } from './federation/publish.ts'
import { handlers } from './handlers.ts'
import { type Control, openControl } from './http/control-socket.ts'
import { openListeners } from './http/listeners.ts'
import { type ServeOptions, serve } from './http/serve.ts'
import { TIMERS, type Timers } from './http/server.ts'
import { inspector } from './mcp/pinning/inspect.ts'
import { type Reload, reloader } from './reload.ts'
import { openServices, type Services } from './services.ts'
import type { Settings } from './settings.ts'
import { shutdown } from './shut.ts'
import { cutRevoked } from './tasks/cut-revoked.ts'
import { runTasks, type Task } from './tasks/every.ts'
import { type RefreshTask, refreshMcp } from './tasks/refresh-mcp.ts'
import { renewCertificate, tlsMaterial } from './tasks/renew-server-certificate.ts'
import { ledgerTasks } from './tasks/tend-ledger.ts'
import { createLogs, type Logs } from './telemetry/log.ts'

export interface GatewayOptions {
  /** What `${env:NAME}` in operators' files is read from. Default: this process's environment. */
  readonly env?: Environment
  readonly timers?: Partial<Timers>
  /** Default: the system's. */
  readonly clock?: () => number
  /** Where log lines go. Default: standard output. */
  readonly logTo?: DestinationStream
  /** True: no TLS listener, only the local operator's control socket. For the command line while no gateway runs. */
  readonly controlOnly?: boolean
}

export interface Gateway {
  /** Base URLs; empty where only the control socket is open. */
  readonly url: string
  readonly adminUrl: string
  /** What this start has made, in words for the operator. */
  readonly made: readonly string[]
  /** Whether an operator secret is stored or set in the environment. */
  readonly hasAdminSecret: () => Promise<boolean>
  /** What sets the first secret at POST /v1/admin/setup; worth nothing once there is one. */
  readonly setupCode: string
  readonly configuration: () => Configuration
  /** Reads the operators' files and the server certificate anew. False: something was wrong, and all is as before. */
  readonly reload: Reload
  /** Resolves once, where the ledger can never be written again. The process must then stop. */
  readonly failed: Promise<Error>
  /** Drains and closes. `graceMs`: how long streams may go on. Default: MCP_PROXY_SHUTDOWN_GRACE_S. A second call cuts them. */
  readonly close: (graceMs?: number) => Promise<void>
}

/**
 * Opens everything and serves. Rejects with one sentence for the operator where something is in the way; nothing is left
 * open then.
 */
export async function startGateway(settings: Settings, options: GatewayOptions = {}): Promise<Gateway> {
  const clock = options.clock ?? Date.now
  const logs = createLogs(settings.logLevel, options.logTo)
  const load = (): Promise<Configuration> => effective(settings, options.env ?? process.env)
  const configuration = await load()
  await makeDataDirectory(settings)
  const control = await openControl(settings.dataDir)
  try {
    const dataDirectory = await openDataDirectory(settings, configuration.audit.queue_limit, clock())
    try {
      return await open({ dataDirectory, control, configuration, load, logs, clock, options })
    } catch (error) {
      await dataDirectory.close()
      throw error
    }
  } catch (error) {
    await control.close()
    throw error
  }
}

/** The operators' files, with the environment's word on DPoP, which then counts in the digest too. */
async function effective({ pluginsDir, egressDpopMode }: Settings, env: Environment): Promise<Configuration> {
  const configuration = await loadConfiguration(pluginsDir, env)
  if (egressDpopMode === null || egressDpopMode === configuration.dpopMode) return configuration
  const digest = hash('sha256', `${configuration.digest} ${egressDpopMode}`)
  return { ...configuration, dpopMode: egressDpopMode, digest }
}

/** Writes a row about the service itself. */
type Note = (action: string, detail: Record<string, string | number>) => Promise<unknown>

interface OpenOptions {
  readonly dataDirectory: DataDirectory
  readonly control: Control
  readonly configuration: Configuration
  readonly load: () => Promise<Configuration>
  readonly logs: Logs
  readonly clock: () => number
  readonly options: GatewayOptions
}

async function open(opening: OpenOptions): Promise<Gateway> {
  const { dataDirectory, control, load, logs, clock, options } = opening
  const { settings } = dataDirectory
  const services = await openServices(dataDirectory, logs, clock, options.env ?? process.env)
  const { metrics, drain, ledger } = services
  const routersOf = (configuration: Configuration): Routers =>
    doors({
      questions: { configuration, ...services.plugins, mcp: services.mcp },
      adminApart: settings.adminListen !== null,
      routes: handlers(services, configuration),
    })
  let inForce = { configuration: opening.configuration, doors: routersOf(opening.configuration) }
  const use = (configuration: Configuration): void => {
    const before = inForce.configuration
    inForce = { configuration, doors: routersOf(configuration) }
    void before.close()
  }
  const digest = (): string => inForce.configuration.digest
  const note: Note = (action, detail) =>
    ledger.commit({ entries: [serviceEntry(action, 'success', detail, clock(), digest())] })

  const serveWith = (router: ServeOptions['router']) => serve(serveOptions(services, router, options.timers))
  const tasks: (RefreshTask | FederationTask)[] = []
  let stopTasks = (): void => {}
  const tls = await tlsMaterial(dataDirectory, clock())
  if (!options.controlOnly) {
    await begin(services, note, digest())
    const handlers = {
      runtime: serveWith(() => inForce.doors.runtime),
      admin: serveWith(() => inForce.doors.admin),
    }
    services.doors.listeners = await openListeners(settings, tls, { ...TIMERS, ...options.timers }, handlers)
    const current = (): Configuration => inForce.configuration
    tasks.push(rereading(services, current), ...federation(services))
    stopTasks = runTasks([...standing(services, current), ...tasks], logs.log)
  }
  control.serve(serveWith(() => inForce.doors.control))

  const stop = (): Promise<unknown> => {
    stopTasks()
    return Promise.all(tasks.map((task) => task.stop()))
  }
  let closing: Promise<void> | null = null
  const close = (graceMs = settings.shutdownGraceS * 1000): Promise<void> => {
    // Asked a second time, the operator will not wait: calls end now, still in order.
    if (closing) drain.cut()
    closing ??= shutdown({
      services,
      control,
      note,
      digest,
      stop,
      checks: () => inForce.configuration.close(),
      graceMs,
    })
    return closing
  }

  const { listeners } = services.doors
  return {
    url: listeners?.url ?? '',
    adminUrl: listeners?.adminUrl ?? '',
    made: dataDirectory.made,
    hasAdminSecret: services.hasAdminSecret,
    setupCode: services.setup.code,
    configuration: () => inForce.configuration,
    reload: reloader({ load, use, note, log: logs.log, metrics, renew: services.clientCasChanged }),
    failed: ledger.failed,
    close,
  }
}

function serveOptions(
  { logs, metrics, clock, drain }: Services,
  router: ServeOptions['router'],
  timers: Partial<Timers> = {},
): ServeOptions {
  const { writeStallMs } = { ...TIMERS, ...timers }
  const { calls, track } = drain
  return { router, ...logs, metrics, clock, writeStallMs, calls, track, draining: () => drain.draining }
}

/** The first rows of a run: what an earlier one left open is closed before this one begins. */
async function begin({ ledger, clock, logs }: Services, note: Note, configDigest: string): Promise<void> {
  const recovered = await ledger.recover(clock(), configDigest)
  if (recovered > 0) {
    logs.log.warn({ recovered }, 'calls of an earlier run that never ended were given the outcome unknown')
  }
  await note('service.started', { node: process.versions.node })
}

/** What is done from time to time, whatever comes in. */
function standing(services: Services, inForce: () => Configuration): readonly Task[] {
  const { dataDirectory, doors: open, drain, clock } = services
  const { database, settings } = dataDirectory
  const configDigest = (): string => inForce().digest
  return [
    ...ledgerTasks({ ...services, database, organisation: settings.org, configDigest }),
    renewCertificate(dataDirectory, open.listeners, clock),
    cutRevoked(drain.calls, clock),
  ]
}

function rereading(
  { dataDirectory, ledger, mcp, clock, logs }: Services,
  inForce: () => Configuration,
): RefreshTask {
  const { database } = dataDirectory
  return refreshMcp({
    database,
    ledger,
    configDigest: () => inForce().digest,
    inspect: () => inspector(database, mcp.upstream(inForce().mcp), clock),
    intervalS: () => inForce().mcp.refresh_interval_s,
    changed: mcp.changed,
    clock,
    log: logs.log,
  })
}

function federation({ dataDirectory, ledger, keys, issuer, clock, logs }: Services): FederationTask[] {
  const { settings, database } = dataDirectory
  if (settings.federationUrl === null) return []
  return [
    federationTask({ database, ledger, keys, url: settings.federationUrl, issuer, clock, log: logs.log }),
  ]
}
