import { totalmem } from 'node:os'
import { dirname } from 'node:path'
import { getHeapStatistics } from 'node:v8'
import type { Database } from '../../db/database.ts'
import { HostNameCache } from '../../db/host-names/kept-names.ts'
import { countUnsealed } from '../../db/ledger/tree/store.ts'
import { limitFigures } from '../../db/limits/figures.ts'
import { PresentRules } from '../../db/limits/present-rules.ts'
import { countUnreadableResources } from '../../db/mcp/resources.ts'
import { countQuarantinedTools } from '../../db/mcp/tools.ts'
import { secretUnchanged, storedSecretOf } from '../../db/operators/secret.ts'
import { grantLookup } from '../../db/people/grants.ts'
import { apiKeyLookup } from '../../db/principals/api-keys.ts'
import { authorityUnchanged } from '../../db/principals/pins.ts'
import { passphraseUnchanged, readSetting } from '../../db/settings.ts'
import { AUTHORITY_TOPIC } from '../../db/support/notices.ts'
import { AnonymousRefusals } from '../../plugins/audit/anonymous.ts'
import { OutcomeWriter, type SeenPrincipal } from '../../plugins/audit/audit.ts'
import { RefusalSummaries } from '../../plugins/audit/summaries.ts'
import { tokenVerifier } from '../../plugins/dpop/access-token.ts'
import { NonceIssuer } from '../../plugins/dpop/dpop.ts'
import { UsageSamples } from '../../plugins/limits/estimate.ts'
import { KnownFull } from '../../plugins/limits/known-full.ts'
import type { EnvironmentVariables } from '../../plugins/operator-files/expand.ts'
import { bearer } from '../../plugins/people/bearer.ts'
import { peopleTokens } from '../../plugins/people/token.ts'
import { EditedTexts } from '../../plugins/pin/edited-texts.ts'
import { pin, recheckPin } from '../../plugins/pin/pin.ts'
import type { SubjectKeys } from '../../plugins/pin/subject-keys.ts'
import { adminSecret, hasOperatorSecret } from '../../plugins/secrets/admin-secret.ts'
import { apiKeyCheck } from '../../plugins/secrets/api-key.ts'
import { FailureThrottle, type MonotonicClock, sharedThrottle } from '../../plugins/secrets/throttle.ts'
import { strangerLookups } from '../../plugins/strangers-line.ts'
import { FirstBootSetup, setupGate } from '../admin/keys/secret.ts'
import type { ArchiveAlarm } from '../admin/operation/archive-shapes.ts'
import { LedgerPlaces, RehearsalPlaces } from '../admin/operation/ledger-places.ts'
import { KeyedQueue } from '../admin/operation/one-at-a-time.ts'
import { recognisedSenders, SecretUse } from '../admin/operators/secret-use.ts'
import { RecentRenewals } from '../admin/principals/renew.ts'
import type { ArchiveTask } from '../archive/schedule.ts'
import { LoginChallenges, openNonceSecret } from '../auth/login-challenge.ts'
import { openSubjectKeys } from '../auth/subject-keys.ts'
import { openTokenKeys, type TokenKeys } from '../auth/token-keys.ts'
import { tokenQuota } from '../auth/token-quota.ts'
import type { DataDirectory } from '../boot/data-directory.ts'
import type { Settings } from '../boot/settings.ts'
import { ActivityFollowers } from '../dashboard/activity/followers.ts'
import { secretReader } from '../egress/secret-reference.ts'
import type { BundleStanding } from '../federation/follow-bundles.ts'
import { FileDescriptors } from '../http/descriptors.ts'
import { isDatabaseReachable } from '../http/health.ts'
import { OpenListeners } from '../http/listeners.ts'
import { MemoryBudget, type MemoryLimits, RequestDrain } from '../http/open-calls.ts'
import { ModelMismatches } from '../llm/answered-models.ts'
import { ModelCatalogue } from '../llm/catalogue.ts'
import { ProviderKeys } from '../llm/credentials/provider-keys.ts'
import { type BreakableProvider, ProviderBreakers } from '../llm/health/breaker.ts'
import { StateMemory } from '../llm/state/memory.ts'
import { openUpstream } from '../llm/upstream/client.ts'
import { idempotencyKeys } from '../llm/upstream/idempotency-keys.ts'
import { consentLinks } from '../mcp/accounts/consent-links.ts'
import { openAccounts } from '../mcp/accounts/open.ts'
import { ParkedCalls } from '../mcp/handlers/parked-calls.ts'
import { openMcp } from '../mcp/mcp.ts'
import { NotifyTargets } from '../notify/targets.ts'
import { FairQueue } from '../operators/oidc/fair-line.ts'
import { openSessions, signInQuota } from '../operators/sessions/open.ts'
import { peopleQuotas } from '../people/open.ts'
import type { PipelineDependencies } from '../pipelines.ts'
import { LogKeys, openTree } from '../proofs/log-keys.ts'
import { LedgerSealer } from '../proofs/sealer.ts'
import { SealingWatch } from '../proofs/sealing-watch.ts'
import { authorityFollower, followOnChanges, renewServerCertificate } from '../tasks/follow-authority.ts'
import { ProviderTrials } from '../tasks/refresh-models.ts'
import { ClockWatch } from '../tasks/watch-clock.ts'
import { DiskSpace } from '../tasks/watch-disk.ts'
import type { GatewayLogs } from '../telemetry/log.ts'
import { certificateEnds, createMetrics } from '../telemetry/metrics.ts'
import { OpenExport } from './exporting.ts'
import type { ConfigurationRejection } from './reload.ts'
import { TelemetrySwitch } from './telemetry.ts'

/** The services that live as long as the process, whichever configuration is in force. */
export type GatewayServices = Awaited<ReturnType<typeof openServices>>

/** Facts that `gateway.ts` alone sets, once routes are made: what makes them again, and what the metrics count. */
interface MountedFacts {
  reroute: () => void
  sealIntervalMs: () => number
  /** The digest of the configuration in force. */
  configDigest: () => string
  lateAnchors: () => Promise<number>
  brokenExpectations: () => Promise<number>
  /** The task of the archive, made when it is first asked for. */
  archive: () => ArchiveTask
  archiveAlarm: () => Promise<Pick<ArchiveAlarm, 'overdue' | 'last'>>
  exportLags: () => Promise<readonly (readonly [string, number])[]>
  /** The providers of the configuration in force. */
  providers: () => readonly BreakableProvider[]
  /** Why the last load of the operators' files was rejected; null: it was not. */
  rejected: ConfigurationRejection | null
}

/** The time as the machine says it, and the time that passes whatever it says. ms. */
export interface GatewayClocks {
  readonly clock: () => number
  readonly monotonic: MonotonicClock
}

/** Facts from outside of the process that services depend on. */
interface ProcessSurroundings {
  /** The descriptors that the process may open; null: any number. */
  readonly descriptorLimit?: number | null
  readonly env: EnvironmentVariables
  /** Default: the machine's. */
  readonly nameServers?: readonly string[] | undefined
  /** The time that a body waits for room. ms. */
  readonly roomMs?: number
}

/**
 * Makes the services on an open data directory. Its `close`, `upstream.close` and `mcp.close` release all
 * that they hold open.
 */
export async function openServices(
  dataDirectory: DataDirectory,
  logs: GatewayLogs,
  { clock, monotonic }: GatewayClocks,
  { env, nameServers, descriptorLimit, roomMs }: ProcessSurroundings,
) {
  const { settings, database, ledger, passphrase } = dataDirectory
  const outcomes = new OutcomeWriter(ledger, database, (error) =>
    logs.log.error({ err: error }, 'an outcome row was lost'),
  )
  const disk = new DiskSpace(
    database.file === null ? settings.dataDir : dirname(database.file),
    settings.diskReserveBytes,
    logs.log,
  )
  await disk.look()
  const listeners = new OpenListeners(settings)
  const { baseUrls, adminUrls, adminPages, issuer } = listeners
  const none = (): Promise<number> => Promise.resolve(0)
  const mounted: MountedFacts = {
    reroute: () => {},
    sealIntervalMs: () => 0,
    configDigest: () => '',
    lateAnchors: none,
    brokenExpectations: none,
    archive: () => {
      throw new Error('the gateway is not open yet')
    },
    archiveAlarm: () => Promise.resolve({ overdue: false, last: null }),
    exportLags: () => Promise.resolve([]),
    providers: () => [],
    rejected: null,
  }
  const { logKeys, keys, nonceSecret, subjectKeys } = await database.alone(async () => {
    const subjectKeys = await openSubjectKeys(database, ledger, passphrase, clock())
    const sealed = (await readSetting(database, 'subject_key_sealer')) ?? ''
    const sealing = { database, ledger, passphrase, inForce: passphraseUnchanged(database, sealed), clock }
    const logKeys = new LogKeys(sealing)
    await openTree(logKeys, database, dataDirectory.names)
    await logKeys.open()
    const nonceSecret = await openNonceSecret(database, ledger, clock())
    return { logKeys, keys: await openTokenKeys(sealing), nonceSecret, subjectKeys }
  })
  const sealer = new LedgerSealer({ database, ledger, keys: logKeys, clock })
  const sealing = new SealingWatch({
    ...{ database, sealer, now: monotonic },
    intervalMs: () => mounted.sealIntervalMs(),
  })
  const stored = storedSecretOf(database)
  const held = memoryLimits(settings)
  if (settings.heldMib !== null && held.process < settings.heldMib * MIB)
    logs.log.warn(
      { held_mib: Math.floor(held.process / MIB) },
      "MCP_PROXY_HELD_MIB is more than a quarter of V8's heap, and was lowered to that: raise --max-old-space-size",
    )
  const budget = new MemoryBudget(
    held,
    () => metrics.overBudget.inc(),
    () => metrics.waitedForBudget.inc(),
    roomMs,
  )
  const descriptors = new FileDescriptors(settings.adminListen !== null, descriptorLimit, (outcome) =>
    metrics.fullConnections.inc({ outcome }),
  )
  const bundleStandings = new Map<string, BundleStanding>()
  const breakers = new ProviderBreakers({ now: monotonic, clock })
  const rules = new PresentRules(database)
  const metrics = createMetrics({
    descriptors,
    waiting: () => ledger.waiting,
    owed: () => outcomes.owed,
    held: () => budget.held,
    unsealed: () => countUnsealed(database),
    sealingStopped: () => sealing.stopped,
    lateAnchors: () => mounted.lateAnchors(),
    brokenExpectations: () => mounted.brokenExpectations(),
    providerStates: () => mounted.providers().map((one) => [one.name, breakers.state(one)]),
    archiveAlarm: () => mounted.archiveAlarm(),
    exportLags: () => mounted.exportLags(),
    quarantined: () => countQuarantinedTools(database),
    unreadable: () => countUnreadableResources(database),
    unreadBundles: () => [...bundleStandings.values()].filter(({ problem }) => problem !== null).length,
    diskFree: () => disk.free,
    diskReserve: () => disk.reserve,
    failing: () => ledger.failing,
    lostLines: () => logs.losses.lost,
    reachable: () => isDatabaseReachable(database),
    listening: () => database.notices.listening,
    limits: limitFigures(database, rules, clock),
    certificates: () => certificateEnds(dataDirectory),
  })
  const throttle = (topic: string): FailureThrottle => sharedThrottle(monotonic, database.notices, topic)
  const secretUse = new SecretUse({ database, ledger, log: logs.log, metrics, clock })
  const recognised = recognisedSenders({ database, ledger, subjectKeys, log: logs.log, clock })
  await recognised.load()
  const secret = adminSecret(
    {
      stored,
      environment: settings.adminSecret ?? '',
      unchanged: secretUnchanged(database),
      recognised,
      onUse: secretUse.note,
    },
    throttle('wrong-secret'),
  )
  const editedTexts = new EditedTexts((what) =>
    logs.log.error({ what }, 'somebody has edited the database: nothing is done by what was edited'),
  )
  const { pinned: pinsOf, bySpiffeId, session: findSession } = strangerLookups(database, editedTexts)
  const pinNow = pin(pinsOf('asked'), subjectKeys, bySpiffeId, monotonic)
  const sessions = openSessions({
    ...{ database, ledger, subjectKeys, settings, findSession },
    pin: pinNow,
    log: logs.log,
  })
  const pinned = pin(pinsOf(), subjectKeys, bySpiffeId, monotonic)
  // A key that another process destroys is forgotten here too.
  database.notices.on(AUTHORITY_TOPIC, () => subjectKeys.known.clear())
  const oneAtATime = new KeyedQueue()
  const nonces = new NonceIssuer(nonceSecret)
  const renew = (): Promise<void> => renewServerCertificate(dataDirectory, listeners.current, clock).run()
  const follow = authorityFollower(dataDirectory, clock, async () => {
    await database.alone(() => openTree(logKeys, database, dataDirectory.names))
    await renew()
    mounted.reroute()
  })
  const followAuthority = (): Promise<void> => oneAtATime.run('authority', follow)
  followOnChanges(database.notices, followAuthority, (error) => logs.log.error({ err: error }, UNFOLLOWED))
  const upstream = openUpstream({ names: new HostNameCache({ servers: nameServers }) })
  const providerKeys = new ProviderKeys({ upstream, clock, log: logs.log })
  const catalogue = new ModelCatalogue()
  const states = new StateMemory({ database, ledger, clock })
  const upstreamSecret = secretReader(env, settings.secretsDir)
  const accounts = openAccounts({
    ...{ database, ledger, subjectKeys, clock, monotonic, log: logs.log },
    secret: upstreamSecret,
    peopleUrl: settings.people?.url ?? null,
    allowPrivate: settings.allowPrivateUpstreams,
    resolve: new HostNameCache({ servers: nameServers }).resolve,
    configDigest: () => mounted.configDigest(),
  })
  const key = subjectKeys.derived('account links')
  const sources = settings.people && {
    accounts,
    links: consentLinks({ key, peopleUrl: settings.people.url, adminUrls }),
  }
  const mcp = openMcp({
    database,
    ledger,
    upstreamSecret,
    allowPrivate: settings.allowPrivateUpstreams,
    resolve: new HostNameCache({ servers: nameServers }).resolve,
    secret: nonceSecret,
    clock,
    accounts: sources,
    edited: (what) => editedTexts.note(what, clock()),
  })
  return {
    dataDirectory,
    logs,
    metrics,
    /** The exports of telemetry, as the configuration in force has them. */
    telemetry: new TelemetrySwitch({ log: logs.log, metrics, clock, nameServers }),
    /** The bytes that they hold. */
    budget,
    clock,
    monotonic,
    ledger,
    outcomes,
    anonymous: new AnonymousRefusals(clock()),
    /** Counts the refusals of known principals that are too many to be rows. */
    summaries: new RefusalSummaries(monotonic, () => disk.low),
    /** The room that the database has. */
    disk,
    /** The principals that have proven a call since the last write of `last_seen_at`, by id. */
    seen: new Map<string, SeenPrincipal>(),
    /** Requests under way. */
    drain: new RequestDrain(),
    /** Open once `gateway.ts` has opened them. */
    listeners,
    mounted,
    /**
     * The base URLs that clients reach the gateway by. Empty until the listeners are open, so read them when
     * they are needed.
     */
    baseUrls,
    /** `iss` of access tokens. */
    issuer,
    keys,
    /** The limits and stops of calls, whichever configuration is in force. */
    rules,
    /** The keys of commitments. */
    subjectKeys,
    /** The changes of one object, one after the other, whichever configuration is in force. */
    oneAtATime,
    rehearsalPlaces: new RehearsalPlaces(),
    ledgerPlaces: new LedgerPlaces(),
    /** The keys that sign the checkpoints of the ledger's tree. */
    logKeys,
    sealer,
    sealing,
    clockWatch: new ClockWatch({ database, clock, log: logs.log }),
    editedTexts,
    logins: new LoginChallenges(nonceSecret),
    quota: tokenQuota(monotonic, () => disk.low, database.notices),
    renewals: new RecentRenewals(monotonic),
    /** The state of the readings of followed bundles, by name. */
    bundleStandings,
    exported: new OpenExport(),
    /** The clients' connections, and the descriptors that they share with all else. */
    descriptors,
    setup: new FirstBootSetup(subjectKeys.derived('setup code'), throttle('wrong-setup-code')),
    /** Sign-ins by the identity provider, whichever configuration is in force. */
    signInThrottles: {
      wrongCodes: throttle('wrong-code'),
      refusedRows: new FailureThrottle(monotonic),
      exchanges: new FairQueue(),
      signIns: signInQuota(monotonic, () => disk.low, database.notices),
    },
    /** Counts of the listener for people, whichever configuration is in force. */
    peopleQuotas: peopleQuotas(monotonic),
    /** The targets that are told of rows, by whichever configuration is in force. */
    notified: new NotifyTargets({ pages: () => adminUrls()[0] ?? '', clock }),
    /** The connections to LLM providers. */
    upstream,
    /** The keys of providers that expire, or that others write. */
    providerKeys,
    /** The name servers, `address` or `address:port`; undefined: the machine's. */
    nameServers,
    /** The look-up of the identity provider's names, whichever configuration is in force. */
    identityProviderNames: new HostNameCache({ servers: nameServers }),
    /** Leave providers that fail alone for a while, whichever configuration is in force. */
    breakers,
    idempotencyKeys: idempotencyKeys(subjectKeys.derived('llm idempotency key')),
    /** The name of the gateways on this database in `CDN-Loop`. */
    loopToken: `sallyport-${subjectKeys.derived('cdn loop').toString('hex').slice(0, 32)}`,
    /** The ids of what providers keep, by the principals whose answers have stated them. */
    states,
    /** The models that providers ran in place of those that they were asked for, since the process started. */
    modelMismatches: new ModelMismatches((provider) => metrics.modelMismatches.inc({ provider })),
    /** Lists of models, as the providers last gave them. */
    catalogue,
    /** Asks providers for them, for operators. */
    trials: new ProviderTrials({ catalogue, upstream, providerKeys, clock }),
    /** The instant of the start. ms since the epoch. */
    startedAt: clock(),
    /** The calls at MCP servers that wait for an answer of their callers of the stateless era. */
    parkedCalls: new ParkedCalls(),
    /** The accounts of principals at MCP servers. */
    accounts,
    /** The same, for pages and operations; null: the listener for people is closed. */
    accountDesk: sources && { accounts, links: sources.links, announce: mcp.announce },
    mcp,
    /** The pages of the dashboard that follow new rows. */
    followers: new ActivityFollowers({ last: () => database.rowCounts.last(), log: logs.log }),
    /** The plugins that remember something: made once, whichever configuration is in force. */
    plugins: {
      operators: {
        secret,
        lookup: pinsOf('asked'),
        unchanged: authorityUnchanged(database),
      },
      sessions,
      adminUrls,
      adminPages,
      people: peopleQuestions(settings, database, { keys, subjectKeys, nonces, monotonic }),
      metricsToken: settings.metricsToken,
      beforeFirstSecret: setupGate(stored),
      pin: pinned,
      pinNow,
      again: recheckPin(pinned, monotonic),
      apiKey: apiKeyCheck(apiKeyLookup(database), throttle('wrong-api-key')),
      constrained: {
        nonces,
        baseUrls,
        tokens: tokenVerifier({
          ...{ issuer, baseUrls, key: keys.verifier },
          peopleIssuer: settings.people?.url ?? null,
        }),
      },
      claims: { ledger, database },
      clock,
      limits: { samples: new UsageSamples(), full: new KnownFull() },
      rules,
      states,
    },
    hasAdminSecret: hasOperatorSecret(stored, settings.adminSecret),
    /** Has the listeners show the server's certificate that is in the data directory now. */
    renewCertificate: renew,
    /** Has this process use the CA and the names in the database, if they have changed. */
    followAuthority,
  }
}

/** Makes the questions of who calls at the listener for people. */
function peopleQuestions(
  { people }: Pick<Settings, 'people'>,
  database: Database,
  {
    keys,
    subjectKeys,
    nonces,
    monotonic,
  }: {
    readonly keys: TokenKeys
    readonly subjectKeys: SubjectKeys
    readonly nonces: NonceIssuer
    readonly monotonic: MonotonicClock
  },
): PipelineDependencies['people'] {
  const url = (): string => people?.url ?? ''
  const urls = (): readonly string[] => (people ? [people.url] : [])
  const tokens = peopleTokens({ issuer: url, baseUrls: urls, key: keys.verifier })
  const door = { url, tokens, nonces }
  const asking = (how?: 'asked') =>
    bearer({ ...door, lookup: grantLookup(database, how), keys: subjectKeys, now: monotonic })
  const pin = asking()
  return { urls, door, pin, pinNow: asking('asked'), again: recheckPin(pin, monotonic) }
}

const UNFOLLOWED = 'the CA that the database holds cannot be used yet'

const MIB = 1024 * 1024

/**
 * Chooses how many bytes calls may hold. While it is judged, a body costs up to three times its length (its
 * bytes, its text, its values), so that a quarter of the memory leaves room for everything else. A quarter of it
 * for one principal: 23 prompts of 4 MiB at once with the default. The bytes lie outside V8's heap and the
 * values in it, two bytes for one if a text is not Latin-1: no process has more than a quarter of its heap,
 * whatever was set, for V8 ends it if that is full. `heapBytes`: the most that the heap may grow to.
 */
export function memoryLimits(
  { heldMib, heldPerPrincipalMib }: Pick<Settings, 'heldMib' | 'heldPerPrincipalMib'>,
  heapBytes = getHeapStatistics().heap_size_limit,
): MemoryLimits {
  // Zero, or more than the machine has, if nothing is constrained.
  const memory = Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY)
  const all = heldMib === null ? Math.min(Math.max(memory / 4, 64 * MIB), 512 * MIB) : heldMib * MIB
  const whole = Math.min(all, heapBytes / 4)
  const share = heldPerPrincipalMib === null ? whole / 4 : Math.min(heldPerPrincipalMib * MIB, whole)
  // An MCP message fits, for a refusal that says why.
  return { process: whole, perPrincipal: share, perAnonymous: Math.min(share, Math.max(whole / 16, 8 * MIB)) }
}
