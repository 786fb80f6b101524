import { hash } from 'node:crypto'
import type { DestinationStream, Logger } from 'pino'
import { findApiKey } from '../db/api-keys.ts'
import { pinnedPrincipal } from '../db/pins.ts'
import { readSetting } from '../db/settings.ts'
import { tokenVerifier } from '../plugins/access-token.ts'
import { adminSecret } from '../plugins/admin-secret.ts'
import { apiKey } from '../plugins/api-key.ts'
import { Nonces } from '../plugins/dpop-nonce.ts'
import type { Environment } from '../plugins/expand.ts'
import type { Principal } from '../plugins/facts.ts'
import { Outcomes } from '../plugins/outcomes.ts'
import { pin } from '../plugins/pin.ts'
import { spiffePin } from '../plugins/spiffe-pin.ts'
import { Strangers, serviceEntry } from '../plugins/strangers.ts'
import { Setup } from './admin/setup.ts'
import { Logins } from './auth/login-challenge.ts'
import { resourcesOf } from './auth/metadata.ts'
import { openNonceSecret } from './auth/nonces.ts'
import { openTokenKeys } from './auth/token-keys.ts'
import { type Configuration, loadConfiguration } from './configuration.ts'
import { type Control, openControl } from './control.ts'
import { type Doors, doors } from './doors.ts'
import { Drain } from './drain.ts'
import { type House, makeDataDirectory, openHouse } from './house.ts'
import { type Listeners, openListeners } from './listeners.ts'
import { openUpstream } from './llm/upstream.ts'
import { createLogs, type Logs } from './log.ts'
import { createMetrics } from './metrics.ts'
import { readiness } from './readiness.ts'
import { type Reload, reloader } from './reload.ts'
import { type RouteSources, routeSources } from './route-sources.ts'
import { type ServeOptions, serve } from './serve.ts'
import { TIMERS, type Timers } from './server.ts'
import type { Settings } from './settings.ts'
import { cutRevoked } from './tasks/cut-revoked.ts'
import { runTasks } from './tasks/every.ts'
import { renewCertificate, tlsMaterial } from './tasks/renew-server-certificate.ts'
import { ledgerTasks, recordStrangers } from './tasks/tend-ledger.ts'
import { watched } from './watched-ledger.ts'

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
    const house = await openHouse(settings, configuration.audit.queue_limit, clock())
    try {
      return await open({ house, control, configuration, load, logs, clock, options })
    } catch (error) {
      await house.close()
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

interface Opening {
  readonly house: House
  readonly control: Control
  readonly configuration: Configuration
  readonly load: () => Promise<Configuration>
  readonly logs: Logs
  readonly clock: () => number
  readonly options: GatewayOptions
}

async function open({
  house,
  control,
  configuration,
  load,
  logs,
  clock,
  options,
}: Opening): Promise<Gateway> {
  const { log, requestLog } = logs
  const { settings, database } = house
  const ledger = watched(house.ledger)
  const outcomes = new Outcomes(ledger, (error) => log.error({ err: error }, 'an outcome row was lost'))
  const strangers = new Strangers(clock())
  const metrics = createMetrics({ waiting: () => ledger.waiting, owed: () => outcomes.owed })
  const drain = new Drain()
  let listeners: Listeners | null = null
  const upstream = openUpstream()
  const seen = new Map<string, Principal>()
  const timers = { ...TIMERS, ...options.timers }
  const storedHash = async (): Promise<string> => (await readSetting(database, 'admin_secret_hash')) ?? ''
  const plugins = {
    adminSecret: adminSecret({ storedHash, environment: settings.adminSecret ?? '' }),
    pin: pin(pinnedPrincipal(database), spiffePin(database)),
    apiKey: apiKey((keyId) => findApiKey(database, keyId)),
  }
  const setup = new Setup()
  const keys = await openTokenKeys({ database, ledger, passphrase: house.passphrase, clock })
  // A listener's port may be known only once it listens, so the URLs are asked for when they are needed.
  const baseUrls = (): readonly string[] => settings.publicUrls ?? listeners?.baseUrls ?? []
  const issuer = (): string => baseUrls()[0] ?? ''
  const nonceSecret = await openNonceSecret(database, ledger, clock())
  const constrained = {
    nonces: new Nonces(nonceSecret),
    baseUrls,
    tokens: tokenVerifier({ issuer, audiences: () => resourcesOf(baseUrls()), key: keys.verifier }),
  }
  const ready = readiness({ database, ledger, drain, authority: house.authority, clock })

  const doorsOf = (next: Configuration): Doors => {
    const logins = new Logins(nonceSecret)
    const sources = {
      house,
      ledger,
      outcomes,
      strangers,
      upstream,
      seen,
      ready,
      keys,
      logins,
      baseUrls,
      setup,
      clientCasChanged: () => renewCertificate(house, listeners, clock).run(),
      registry: metrics.registry,
    }
    const routes: RouteSources = routeSources({ ...sources, configuration: next })
    const questions = { configuration: next, ...plugins, constrained, claims: { ledger, database } }
    return doors({ questions, adminApart: settings.adminListen !== null, routes })
  }
  let inForce = { configuration, doors: doorsOf(configuration) }
  const digest = (): string => inForce.configuration.digest

  const serveWith = (router: ServeOptions['router']) =>
    serve({
      router,
      log,
      requestLog,
      metrics,
      clock,
      writeStallMs: timers.writeStallMs,
      draining: () => drain.draining,
      calls: drain.calls,
      track: drain.track,
    })

  const note = (action: string, detail: Record<string, string | number>): Promise<unknown> =>
    ledger.commit({ entries: [serviceEntry(action, 'success', detail, clock(), digest())] })

  const tls = await tlsMaterial(house, clock())
  let stopTasks = (): void => {}
  if (!options.controlOnly) {
    const recovered = await ledger.recover(clock(), digest())
    if (recovered > 0)
      log.warn({ recovered }, 'calls of an earlier run that never ended were given the outcome unknown')
    await note('service.started', { node: process.versions.node, dpop_mode: configuration.dpopMode })
    const handlers = {
      runtime: serveWith(() => inForce.doors.runtime),
      admin: serveWith(() => inForce.doors.admin),
    }
    listeners = await openListeners(settings, tls, timers, handlers)
    const tended = { database, ledger, outcomes, strangers, seen, configDigest: digest, clock }
    stopTasks = runTasks(
      [
        ...ledgerTasks({ ...tended, organisation: settings.org }),
        renewCertificate(house, listeners, clock),
        cutRevoked(drain.calls, clock),
      ],
      log,
    )
  }
  control.serve(serveWith(() => inForce.doors.control))

  const use = (next: Configuration): void => {
    inForce = { configuration: next, doors: doorsOf(next) }
  }
  let closing: Promise<void> | null = null
  const close = (graceMs = settings.shutdownGraceS * 1000): Promise<void> => {
    // Asked a second time, the operator will not wait: streams end now, still in order.
    if (closing) drain.cut()
    closing ??= shut(graceMs)
    return closing
  }
  const shut = async (graceMs: number): Promise<void> => {
    drain.begin()
    stopTasks()
    const closed = listeners?.close()
    await drain.finish(graceMs)
    await outcomes.flushed()
    await outcomes.retry()
    await recordStrangers({ ledger, strangers, configDigest: digest, clock }).catch(logged(log))
    if (listeners) await note('service.stopped', {}).catch(logged(log))
    listeners?.destroy()
    await closed
    upstream.close()
    await control.close()
    await house.close()
    logs.flush()
  }

  return {
    url: listeners?.url ?? '',
    adminUrl: listeners?.adminUrl ?? '',
    made: house.made,
    hasAdminSecret: async () => settings.adminSecret !== null || (await storedHash()) !== '',
    setupCode: setup.code,
    configuration: () => inForce.configuration,
    reload: reloader({ load, use, note, log, metrics, renew: renewCertificate(house, listeners, clock).run }),
    failed: ledger.failed,
    close,
  }
}

const logged =
  (log: Logger) =>
  (error: unknown): void =>
    log.error({ err: error }, 'the ledger could not be written while stopping')
