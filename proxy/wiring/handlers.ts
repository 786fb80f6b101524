import { databaseLocation } from '../../db/engine.ts'
import { type McpStanding, mcpStanding } from '../../db/mcp/bindings.ts'
import { walkOnThread } from '../../db/rehearsal/thread.ts'
import { audit, type CallRecorder } from '../../plugins/audit/audit.ts'
import type { Known } from '../../plugins/audit/decision.ts'
import type { Principal } from '../../plugins/facts.ts'
import type { Arrival, Recorder } from '../../plugins/plugin.ts'
import type { Setup } from '../admin/keys/setup.ts'
import type { AdminContext } from '../admin/operation/context.ts'
import { deniedChanges } from '../admin/operation/denied.ts'
import { renewCertificate } from '../admin/principals/renew.ts'
import { issueToken } from '../auth/issue-token.ts'
import type { Logins } from '../auth/login-challenge.ts'
import type { TokenKeys } from '../auth/token-keys.ts'
import { remadeAuthority } from '../boot/shared-authority.ts'
import type { Dashboard } from '../dashboard/frame/dashboard.ts'
import { readiness } from '../http/health.ts'
import type { Reply } from '../http/reply.ts'
import { type LlmFacts, llmHandler } from '../llm/handler.ts'
import { modelHandlers } from '../llm/models.ts'
import { mcpHandler } from '../mcp/handlers/dispatch.ts'
import { endSession, handshake } from '../mcp/handlers/handshake.ts'
import { chosenNames, httpGet } from '../mcp/http-get/tool.ts'
import { inspector } from '../mcp/pinning/inspect.ts'
import type { McpUpstream } from '../mcp/upstream/client.ts'
import { mappingOf } from '../operators/oidc/mapping.ts'
import { Provider } from '../operators/oidc/provider.ts'
import { signsInBy } from '../operators/oidc/signs-in.ts'
import { rulesOf } from '../operators/sessions/rules.ts'
import type { SigningIn } from '../operators/signing-in.ts'
import { anchorStandings } from '../proofs/anchors/standing.ts'
import { type ProofHandlers, proofHandlers } from '../proofs/handlers.ts'
import { NAMED } from '../tasks/follow-authority.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { type Configuration, expectedOf, judgingOf } from './configuration.ts'
import { inForceOf } from './in-force.ts'
import type { Services } from './services.ts'

/**
 * The handlers of the routes, and the recorders of their decisions. One set for each configuration in force.
 */
export interface Handlers {
  readonly recorder: CallRecorder
  /** Counts callers that were refused before their principal was known. */
  readonly anonymous: Recorder<Arrival>
  /** Records operators that were refused; what they are allowed, their changes say. */
  readonly operators: Recorder<Known & { readonly principal?: Principal }>
  readonly llm: (facts: LlmFacts) => Promise<Reply>
  readonly models: ReturnType<typeof modelHandlers>
  readonly mcp: {
    readonly work: ReturnType<typeof mcpHandler>
    readonly standing: McpStanding
    readonly handshake: ReturnType<typeof handshake>
    readonly endSession: ReturnType<typeof endSession>
  }
  readonly auth: {
    readonly issue: ReturnType<typeof issueToken>
    readonly renew: ReturnType<typeof renewCertificate>
    readonly logins: Logins
    readonly keys: TokenKeys
    readonly baseUrls: () => readonly string[]
    /** True where every call must come with a DPoP proof. */
    readonly proofRequired: boolean
  }
  readonly proofs: ProofHandlers
  readonly admin: AdminContext
  readonly setup: Setup
  readonly signIn: SigningIn
  readonly dashboard: Dashboard
  readonly readiness: ReturnType<typeof readiness>
  readonly registry: Metrics['registry']
}

/** Makes the handlers of one configuration. */
export function handlers(services: Services, configuration: Configuration): Handlers {
  const { dataDirectory, ledger, drain, clock, keys, logins, baseUrls } = services
  const { database, authority } = dataDirectory
  const mcpUpstream = services.mcp.upstream(configuration.mcp)
  const made = recorders(services, configuration)
  const admin = adminContext(services, configuration, mcpUpstream, made.recorder)
  const signIn = signingIn(services, configuration, admin)
  const proofRequired = configuration.dpopMode === 'required'
  return {
    ...made,
    llm: llmHandler(configuration.llm, services),
    models: modelHandlers(configuration.llm, services.catalogue),
    mcp: mcpHandlers(services, configuration, mcpUpstream),
    auth: {
      issue: issueToken({
        database,
        ledger,
        keys,
        logins,
        quota: services.quota,
        baseUrls,
        configDigest: configuration.digest,
      }),
      renew: renewCertificate(admin, services.renewals),
      logins,
      keys,
      baseUrls,
      proofRequired,
    },
    proofs: proofHandlers({ database, keys: services.logKeys, subjectKeys: services.subjectKeys }),
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
      modelMismatches: () => services.modelMismatches.list(),
      inForce: inForceOf(configuration, dataDirectory.settings),
    },
    readiness: readiness({
      ...{ database, ledger, drain, authority, disk: services.disk, clock },
      descriptors: services.descriptors,
      anchors: admin.anchors,
      losses: services.logs.losses,
    }),
    registry: services.metrics.registry,
  }
}

function recorders(
  { dataDirectory, ledger, outcomes, anonymous, summaries, seen, metrics }: Services,
  configuration: Configuration,
): Pick<Handlers, 'recorder' | 'anonymous' | 'operators'> {
  const recorder = audit({
    ledger,
    outcomes,
    database: dataDirectory.database,
    judging: judgingOf(configuration),
    anonymous,
    summaries,
    seen,
    watching: {
      shadow: (check, verdict) => metrics.shadowVerdicts.inc({ check, verdict }),
      candidate: (result) => metrics.candidateVerdicts.inc({ result }),
    },
  })
  return {
    recorder,
    anonymous: {
      allowed: () => Promise.resolve(null),
      refused: (_facts, { reason }) => {
        anonymous.count(reason)
        return Promise.resolve(null)
      },
    },
    operators: {
      allowed: ({ principal }) => {
        if (principal) seen.set(principal.id, principal)
        return Promise.resolve(null)
      },
      refused: recorder.refused,
    },
  }
}

function mcpHandlers(
  { mcp, dataDirectory, nameServers }: Services,
  { mcp: options }: Configuration,
  upstream: McpUpstream,
): Handlers['mcp'] {
  const { registry, sessions, cancellations, serverRequests, cancel, states, announce } = mcp
  return {
    work: mcpHandler({
      registry,
      upstream,
      serverRequests,
      cancellations,
      states,
      onToolsChanged: ({ resource_id: id }) => announce(id),
      enforced: options.enforce_tools_call,
      list: options.list,
      httpGet: options.http_get.enabled,
      fetchUrl: httpGet(options.http_get, chosenNames(nameServers)),
    }),
    standing: mcpStanding(dataDirectory.database),
    handshake: handshake({ registry, sessions, cancel }),
    endSession: endSession(sessions),
  }
}

function adminContext(
  {
    dataDirectory,
    ledger,
    clock,
    keys,
    logKeys,
    subjectKeys,
    oneAtATime,
    rehearsalPlaces,
    ledgerPlaces,
    followAuthority,
  }: Services,
  configuration: Configuration,
  upstream: McpUpstream,
  recorder: CallRecorder,
): AdminContext {
  const { database, authority, names, settings } = dataDirectory
  return {
    hasEnvironmentSecret: settings.adminSecret !== null,
    twoPerson: configuration.operators.two_person,
    signsIn: signsInBy(database, configuration.operators),
    sessionRules: rulesOf(configuration.operators),
    requireRehearsal: configuration.operators.require_rehearsal,
    expected: expectedOf(configuration),
    walkCalls: (task, signal, onProgress) =>
      walkOnThread(databaseLocation(settings.databaseUrl), task, signal, onProgress),
    rehearsalPlaces,
    ledgerPlaces,
    recordDenied: deniedChanges(ledger, recorder, clock, configuration.digest),
    database,
    ledger,
    authority,
    subjectKeys,
    oneAtATime,
    ...names,
    naming: {
      fixed: settings.named,
      makeAuthority: (next, at) =>
        remadeAuthority(database, authority.rootPem, { ...next, passphrase: dataDirectory.passphrase, at }),
      follow: async () => {
        database.notices.tell(NAMED, 'anew')
        await followAuthority()
      },
    },
    configDigest: configuration.digest,
    rotationGraceHours: configuration.pin.rotation_grace_hours,
    rotateSigningKey: keys.rotate,
    rotateAuditKey: (entry) => logKeys.rotate(entry),
    anchors: () => anchorStandings(database, configuration.proofs.anchors, clock()),
    mcp: {
      inspect: inspector(database, upstream, clock),
      allowPrivateUpstreams: settings.allowPrivateUpstreams,
      secretsDir: settings.secretsDir,
    },
  }
}

function signingIn(
  {
    plugins,
    subjectKeys,
    anonymous,
    summaries,
    logs,
    monotonic,
    signInThrottles,
    identityProviderNames: { resolve },
  }: Services,
  { operators }: Configuration,
  context: AdminContext,
): SigningIn {
  return {
    context,
    sessions: plugins.sessions,
    pin: plugins.pinNow,
    rules: rulesOf(operators),
    mapping: mappingOf(operators.oidc),
    provider: operators.oidc ? new Provider(operators.oidc, monotonic, resolve) : null,
    key: subjectKeys.derived('sign-in transactions'),
    ...signInThrottles,
    summaries,
    count: (reason) => anonymous.count(reason),
    adminUrls: plugins.adminUrls,
    log: logs.log,
  }
}
