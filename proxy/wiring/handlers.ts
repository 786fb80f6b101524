import { join } from 'node:path'
import { databaseLocation } from '../../db/engine.ts'
import { HostNameCache } from '../../db/host-names/kept-names.ts'
import { mcpBindingAssertion } from '../../db/mcp/bindings.ts'
import { takesBearer } from '../../db/people/grants.ts'
import { walkerOf } from '../../db/rehearsal/thread.ts'
import type { CallRecorder } from '../../plugins/audit/audit.ts'
import { type RouteRecorders, routeRecorders } from '../../plugins/audit/audit.ts'
import type { FirstBootSetup } from '../admin/keys/secret.ts'
import type { AdminContext, ArchiveDesk } from '../admin/operation/context.ts'
import { deniedChanges } from '../admin/operation/denied.ts'
import type { AdministrationContext } from '../admin/pipeline.ts'
import { renewClientCertificate } from '../admin/principals/renew.ts'
import { archiveDesk } from '../archive/desk.ts'
import { issueToken } from '../auth/issue-token.ts'
import { mcpMetadataUrl } from '../auth/metadata.ts'
import type { AuthHandlers } from '../auth/routes.ts'
import { authorityRemaker, SharedRotation } from '../boot/shared-authority.ts'
import type { AnswerJudge } from '../content/judged-reply.ts'
import type { DashboardContext, ServiceStanding } from '../dashboard/frame/dashboard.ts'
import { exportDesk } from '../export/desk.ts'
import { readinessProbe } from '../http/health.ts'
import type { PublicHandlers } from '../http/routes.ts'
import { isRequestedModel } from '../llm/answered-models.ts'
import { describeProviders } from '../llm/describe-providers.ts'
import { llmHandler } from '../llm/handler.ts'
import { ownLimitsHandler } from '../llm/limits/own-limits.ts'
import { priceFinder, pricingOf } from '../llm/limits/priced.ts'
import { modelHandlers } from '../llm/models.ts'
import type { LlmHandlers } from '../llm/routes.ts'
import { providersOf as serving } from '../llm/routing.ts'
import { hasCredentials, usesCallerKey } from '../llm/upstream/headers.ts'
import { mcpHandler } from '../mcp/handlers/dispatch.ts'
import { endCallerSession, handshakeHandler } from '../mcp/handlers/handshake.ts'
import { dnsOnlyResolver, httpGet } from '../mcp/http-get/tool.ts'
import { inspector } from '../mcp/pinning/inspect.ts'
import type { McpHandlers } from '../mcp/routes.ts'
import type { McpUpstream } from '../mcp/upstream/client.ts'
import { targetReader } from '../notify/options.ts'
import { canSignInByProvider, readClaimMapping } from '../operators/oidc/mapping.ts'
import { IdentityProvider } from '../operators/oidc/provider.ts'
import { readSessionRules } from '../operators/sessions/open.ts'
import type { SignInContext } from '../operators/signing-in.ts'
import { openPeople } from '../people/open.ts'
import type { PeopleHandlers } from '../people/routes.ts'
import type { GatewayPipelines } from '../pipelines.ts'
import { anchorStandingsOf } from '../proofs/anchors/standing.ts'
import { type ProofHandlers, proofHandlers } from '../proofs/handlers.ts'
import { issuingAuthority } from '../tasks/follow-authority.ts'
import type { GatewayMetrics } from '../telemetry/metrics.ts'
import type { ProviderStanding } from '../telemetry/provider-figures.ts'
import { type Configuration, definitionFlags, expectedOf, judgingOf } from './configuration.ts'
import { describeInForce } from './in-force.ts'
import type { GatewayServices } from './services.ts'

/**
 * The handlers of the routes, by room, and the recorders of their decisions. One set for each configuration
 * in force.
 */
export interface RouteHandlers {
  readonly recorders: RouteRecorders
  readonly llm: LlmHandlers
  readonly mcp: McpHandlers
  readonly auth: AuthHandlers<Parameters<ReturnType<typeof renewClientCertificate>>[0]>
  readonly proofs: ProofHandlers
  readonly admin: AdministrationContext
  readonly setup: FirstBootSetup
  readonly signIn: SignInContext
  readonly dashboard: DashboardContext
  /** Null: the listener for people is closed. */
  readonly people: PeopleHandlers | null
  readonly public: PublicHandlers
  readonly registry: GatewayMetrics['registry']
}

/**
 * Makes the handlers of one configuration. `change`: the questions of a change, as proxy/pipelines.ts names
 * them.
 */
export function createHandlers(
  services: GatewayServices,
  configuration: Configuration,
  { change, whatIf }: Pick<GatewayPipelines, 'change'> & Pick<AdminContext, 'whatIf'>,
): RouteHandlers {
  const { dataDirectory, ledger, drain, clock, keys, logins, baseUrls } = services
  const { database, authority } = dataDirectory
  const mcpUpstream = services.mcp.upstream(configuration.mcp)
  const recorders = recordersOf(services, configuration)
  const context = { ...adminContext(services, configuration, mcpUpstream, recorders.calls), whatIf }
  const admin: AdministrationContext = { ...context, change: change(context) }
  const signIn = signInContext(services, configuration, admin)
  const proofRequired = configuration.dpopMode === 'required'
  return {
    recorders,
    llm: {
      call: llmHandler(configuration.llm, { ...services, answerJudges: answerJudges(configuration) }),
      models: modelHandlers(configuration.llm, services.catalogue),
      limits: ownLimitsHandler({ database, rules: services.rules }),
    },
    mcp: mcpHandlers(services, configuration, mcpUpstream),
    auth: {
      issue: issueToken({
        database,
        ledger,
        keys,
        logins,
        quota: services.quota,
        reask: async (facts) => ({ ...facts, ...(await services.plugins.pinNow.still?.(facts)) }).principal,
        baseUrls,
        configDigest: configuration.digest,
        vendorKeys: configuration.llm.providers.some(usesCallerKey),
      }),
      renew: renewClientCertificate(admin, services.renewals),
      logins,
      keys,
      baseUrls,
      proofRequired,
    },
    proofs: proofHandlers({ ...services, database, keys: services.logKeys }),
    admin,
    setup: services.setup,
    signIn,
    dashboard: {
      context: admin,
      signIn,
      setup: services.setup,
      baseUrls,
      proofRequired,
      followers: services.followers,
      modelMismatches: { list: () => openMismatches(services, configuration) },
      standing: () => serviceStanding(services, configuration),
      inForce: describeInForce(configuration, dataDirectory.settings),
    },
    people: peopleHandlers(services, configuration, admin),
    public: {
      readiness: readinessProbe({
        ...{ database, ledger, drain, authority, disk: services.disk, clock },
        providers: () => providersStanding(services, configuration),
        descriptors: services.descriptors,
        anchors: admin.anchors,
        sealing: services.sealing,
        clockWatch: services.clockWatch,
        losses: services.logs.losses,
      }),
      authority,
    },
    registry: services.metrics.registry,
  }
}

function peopleHandlers(
  services: GatewayServices,
  { people: options, operators }: Configuration,
  context: AdminContext,
): PeopleHandlers | null {
  const { dataDirectory, keys, subjectKeys, anonymous, logs, monotonic, signInThrottles } = services
  const { people } = dataDirectory.settings
  if (!people) return null
  const named = options.sign_in === 'operators' ? operators.oidc : { ...options.sign_in, map: {} }
  const oidc = named && { ...named, claim: options.claim }
  const { resolve } = services.identityProviderNames
  const signIn = openPeople({
    ...{ url: people.url, keys, context, options, anonymous, log: logs.log, ...signInThrottles },
    identityProvider: oidc ? new IdentityProvider(oidc, monotonic, logs.log, resolve) : null,
    quotas: services.peopleQuotas,
    key: subjectKeys.derived('people sign-ins'),
    identityKey: subjectKeys.derived('people identities'),
    stateKey: subjectKeys.derived('people states'),
    clientKey: subjectKeys.derived('people clients'),
    resolve: new HostNameCache({ servers: services.nameServers }).resolve,
  })
  return {
    ...{ signIn, keys },
    metadataUrl: (asked) => mcpMetadataUrl(asked, [people.url]),
    takesBearer: async () => options.llm === 'none' || (await takesBearer(dataDirectory.database)),
  }
}

/** Null: no provider is configured. */
const providersStanding = ({ breakers }: GatewayServices, { llm }: Configuration) =>
  llm.providers.length === 0 ? null : breakers.standing(llm.providers)

/** The models that ran in place of others, but for what the configuration of now calls the same. */
const openMismatches = ({ modelMismatches }: GatewayServices, { llm }: Configuration) =>
  modelMismatches.list().filter(({ provider: name, asked, answered }) => {
    const provider = llm.providers.find((one) => one.name === name)
    return provider !== undefined && !isRequestedModel(provider, asked, answered)
  })

function serviceStanding(
  { disk, clockWatch, ledger, mounted, catalogue, modelMismatches, metrics, clock }: GatewayServices,
  { llm, notify }: Configuration,
): ServiceStanding {
  const isServed = serving(llm)
  return {
    diskLow: disk.low,
    clockOffS: clockWatch.offS,
    ledgerFailing: ledger.failing,
    rejected: mounted.rejected,
    told: (notify?.targets ?? []).map((target) => [target.name, targetReader(target)] as const),
    providers: llm.providers.map((provider) => {
      const { name, keyVariable = null } = provider
      const calls = metrics.providers.standing(name, clock())
      const keyMissing = provider.auth !== 'passthrough' && !hasCredentials(provider, {})
      // If nobody has called it, its list says whether it answers.
      const { failingSince, problem } =
        (calls.failingSince ?? calls.answeringSince) ? calls : catalogue.of(provider).failure
      return { name, keyVariable, keyMissing, failingSince, problem }
    }),
    unserved: modelMismatches.unserved().filter(({ asked }) => isServed(asked).length === 0),
  }
}

function recordersOf(
  { dataDirectory, ledger, outcomes, anonymous, summaries, seen, metrics }: GatewayServices,
  configuration: Configuration,
): RouteRecorders {
  return routeRecorders({
    ledger,
    outcomes,
    database: dataDirectory.database,
    judging: judgingOf(configuration),
    anonymous,
    summaries,
    seen,
    pricing: pricingOf(configuration),
    watching: {
      shadow: (check, verdict) => metrics.shadowVerdicts.inc({ check, verdict }),
      content: (rule, place, verdict) => metrics.contentFindings.inc({ rule, place, verdict }),
      candidate: (result) => metrics.candidateVerdicts.inc({ result }),
    },
  })
}

function mcpHandlers(
  { mcp, parkedCalls, dataDirectory, nameServers, baseUrls }: GatewayServices,
  configuration: Configuration,
  upstream: McpUpstream,
): McpHandlers {
  const { mcp: options } = configuration
  const { registry, sessions, cancellations, serverRequests, cancel, states, announce } = mcp
  return {
    work: mcpHandler({
      registry,
      upstream,
      serverRequests,
      listedUris: mcp.listedUris,
      findAccount: mcp.findAccount,
      answerJudges: answerJudges(configuration),
      parkedCalls,
      cancellations,
      states,
      announce,
      enforced: options.enforce_tools_call,
      list: options.list,
      httpGet: options.http_get.enabled,
      fetchUrl: httpGet(options.http_get, dnsOnlyResolver(nameServers)),
    }),
    standing: mcpBindingAssertion(dataDirectory.database),
    handshake: handshakeHandler({ registry, sessions, cancel }),
    endSession: endCallerSession(sessions),
    metadataUrl: (asked) => mcpMetadataUrl(asked, baseUrls()),
  }
}

/** Lists the judges of answers, in the order of their files. */
const answerJudges = ({ checks }: Configuration): readonly AnswerJudge[] =>
  checks.flatMap(({ content, shadow }) => (content ? [{ judge: content, enforces: !shadow }] : []))

/** Describes the providers of a configuration, by the calls of this gateway. */
function providersOf(
  { catalogue, trials, metrics, breakers, startedAt }: GatewayServices,
  { llm }: Configuration,
): AdminContext['providers'] {
  const breakerOf = (name: string) => {
    const provider = llm.providers.find((one) => one.name === name)
    return provider ? breakers.state(provider) : 'off'
  }
  return {
    ask: (name) => trials.ask(llm, name),
    list: (at) => {
      const { providers, routes } = describeProviders(llm, catalogue)
      return {
        since: printInstant(startedAt) ?? '',
        providers: providers.map((provider) => ({
          ...provider,
          breaker: breakerOf(provider.name),
          ...standingView(metrics.providers.standing(provider.name, at)),
        })),
        routes,
      }
    },
  }
}

const printInstant = (at: number | null): string | null => (at === null ? null : new Date(at).toISOString())

const standingView = ({ answeringSince, failingSince, problem, hour, day }: ProviderStanding) => ({
  answering_since: printInstant(answeringSince),
  failing_since: printInstant(failingSince),
  problem,
  last_hour: spanView(hour),
  last_day: spanView(day),
})

const spanView = ({ calls, errors, tokens, ...span }: ProviderStanding['hour']) => ({
  ...{ calls, errors, tokens: { ...tokens } },
  p50_ms: span.p50Ms,
  p99_ms: span.p99Ms,
  first_byte_p50_ms: span.firstByteP50Ms,
  first_byte_p99_ms: span.firstByteP99Ms,
})

function adminContext(
  services: GatewayServices,
  configuration: Configuration,
  upstream: McpUpstream,
  recorder: CallRecorder,
): Omit<AdminContext, 'whatIf'> {
  const { dataDirectory, ledger, clock, keys, logKeys, followAuthority, bundleStandings } = services
  const { subjectKeys, oneAtATime, rehearsalPlaces, ledgerPlaces, sealing, editedTexts } = services
  const { database, authority, names, settings } = dataDirectory
  return {
    hasEnvironmentSecret: settings.adminSecret !== null,
    twoPerson: configuration.operators.two_person,
    signsIn: canSignInByProvider(database, configuration.operators),
    sessionRules: readSessionRules(configuration.operators),
    requireRehearsal: configuration.operators.require_rehearsal,
    expected: expectedOf(configuration),
    walkCalls: walkerOf(databaseLocation(settings.databaseUrl), database.archive),
    rehearsalPlaces,
    ledgerPlaces,
    sealing,
    archive: archiveDeskOf(services, configuration),
    exports: exportDesk(database, configuration.exports),
    editedTexts,
    recordDenied: deniedChanges(ledger, recorder, clock, configuration.digest),
    database,
    ledger,
    authority,
    issuing: issuingAuthority(dataDirectory, followAuthority),
    subjectKeys,
    oneAtATime,
    ...names,
    naming: {
      fixed: settings.named,
      makeAuthority: authorityRemaker(database, authority.rootPem, dataDirectory.passphrase),
      follow: followAuthority,
    },
    rotation: new SharedRotation(database, join(settings.dataDir, 'ca'), dataDirectory.passphrase),
    configDigest: configuration.digest,
    rotationGraceHours: configuration.pin.rotation_grace_hours,
    trustBundles: () =>
      new Map(
        Object.keys(configuration.pin.trust_bundles).map((name) => [name, bundleStandings.get(name) ?? null]),
      ),
    rotateSigningKey: keys.rotate,
    rotateAuditKey: logKeys.rotate,
    anchors: anchorStandingsOf(database, configuration.proofs.anchors, clock),
    providers: providersOf(services, configuration),
    findPrices: priceFinder(configuration),
    accounts: services.accountDesk,
    mcp: {
      inspect: inspector(database, upstream, clock, definitionFlags(configuration)),
      allowPrivateUpstreams: settings.allowPrivateUpstreams,
      secretsDir: settings.secretsDir,
      peopleUrl: settings.people?.url ?? null,
    },
  }
}

/** Makes the archive of one configuration, as operations see it. */
export const archiveDeskOf = (
  { dataDirectory, disk, mounted }: GatewayServices,
  { archive }: Configuration,
): ArchiveDesk =>
  archiveDesk({
    database: dataDirectory.database,
    options: archive,
    disk,
    wake: () => mounted.archive().wake(),
  })

function signInContext(
  services: GatewayServices,
  { operators }: Configuration,
  context: AdminContext,
): SignInContext {
  const { plugins, subjectKeys, anonymous, summaries, logs, monotonic, signInThrottles } = services
  const { resolve } = services.identityProviderNames
  return {
    context,
    sessions: plugins.sessions,
    pin: plugins.pinNow,
    rules: readSessionRules(operators),
    mapping: readClaimMapping(operators.oidc),
    provider: operators.oidc ? new IdentityProvider(operators.oidc, monotonic, logs.log, resolve) : null,
    key: subjectKeys.derived('sign-in transactions'),
    ...signInThrottles,
    summaries,
    anonymous,
    adminPages: plugins.adminPages,
    log: logs.log,
  }
}
