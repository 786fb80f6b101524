import { totalmem } from 'node:os'
import { dirname } from 'node:path'
import { getHeapStatistics } from 'node:v8'
import { KeptNames } from '../../db/host-names/kept-names.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { countUnsealed } from '../../db/ledger/tree/store.ts'
import { countUnreadableResources } from '../../db/mcp/resources.ts'
import { countQuarantinedTools } from '../../db/mcp/tools.ts'
import { readSecret, secretUnchanged } from '../../db/operators/secret.ts'
import { findApiKey } from '../../db/principals/api-keys.ts'
import { authorityUnchanged } from '../../db/principals/pins.ts'
import { AUTHORITY, type Notices } from '../../db/support/notices.ts'
import { AnonymousRefusals } from '../../plugins/audit/anonymous.ts'
import { Outcomes } from '../../plugins/audit/audit.ts'
import { RefusalSummaries } from '../../plugins/audit/summaries.ts'
import { tokenVerifier } from '../../plugins/dpop/access-token.ts'
import { Nonces } from '../../plugins/dpop/dpop.ts'
import type { Principal } from '../../plugins/facts.ts'
import type { Environment } from '../../plugins/operator-files/expand.ts'
import { pin, stillPinned } from '../../plugins/pin/pin.ts'
import type { SubjectKeys } from '../../plugins/pin/subject-keys.ts'
import { adminSecret } from '../../plugins/secrets/admin-secret.ts'
import { apiKey } from '../../plugins/secrets/api-key.ts'
import type { Quota } from '../../plugins/secrets/quota.ts'
import { type Monotonic, Throttle } from '../../plugins/secrets/throttle.ts'
import { strangersQuestions } from '../../plugins/strangers-line.ts'
import { beforeFirstSecret, Setup } from '../admin/keys/setup.ts'
import { LedgerPlaces } from '../admin/operation/ledger-places.ts'
import { OneAtATime } from '../admin/operation/one-at-a-time.ts'
import { RehearsalPlaces } from '../admin/operation/places.ts'
import { recognisedSenders, SecretUse } from '../admin/operators/secret-use.ts'
import { Renewals } from '../admin/principals/renew.ts'
import { Logins } from '../auth/login-challenge.ts'
import { resourcesOf } from '../auth/metadata.ts'
import { openNonceSecret } from '../auth/nonces.ts'
import { openSubjectKeys } from '../auth/subject-keys.ts'
import { openTokenKeys, type TokenKeys } from '../auth/token-keys.ts'
import { tokenQuota } from '../auth/token-quota.ts'
import type { DataDirectory } from '../boot/data-directory.ts'
import type { Settings } from '../boot/settings.ts'
import { Followers } from '../dashboard/activity/followers.ts'
import { secretOf } from '../egress/secret-reference.ts'
import { Descriptors } from '../http/descriptors.ts'
import { answers } from '../http/health.ts'
import type { Listeners } from '../http/listeners.ts'
import { Budget, Drain, type HeldLimits } from '../http/open-calls.ts'
import { ModelMismatches } from '../llm/answered-models.ts'
import { Catalogue } from '../llm/catalogue.ts'
import { openUpstream, type Upstream } from '../llm/upstream/client.ts'
import { type IdempotencyKeys, idempotencyKeys } from '../llm/upstream/idempotency-keys.ts'
import { type Mcp, openMcp } from '../mcp/mcp.ts'
import { FairLine } from '../operators/oidc/fair-line.ts'
import { openSessions } from '../operators/sessions/open.ts'
import { signInQuota } from '../operators/sessions/quota.ts'
import type { SigningIn } from '../operators/signing-in.ts'
import type { PipelineSources } from '../pipelines.ts'
import { LogKeys, openTree } from '../proofs/log-keys.ts'
import { Sealer } from '../proofs/sealer.ts'
import { follower, NAMED } from '../tasks/follow-authority.ts'
import { renewCertificate } from '../tasks/renew-server-certificate.ts'
import { Disk } from '../tasks/watch-disk.ts'
import { certificateEnds } from '../telemetry/certificate-ends.ts'
import type { Logs } from '../telemetry/log.ts'
import { createMetrics, type Metrics } from '../telemetry/metrics.ts'

/** The services that live as long as the process, whichever configuration is in force. */
export interface Services {
  readonly dataDirectory: DataDirectory
  readonly logs: Logs
  readonly metrics: Metrics
  readonly clock: () => number
  readonly monotonic: Monotonic
  readonly ledger: Ledger
  readonly outcomes: Outcomes
  readonly anonymous: AnonymousRefusals
  /** Counts the refusals of known principals that are too many to be rows. */
  readonly summaries: RefusalSummaries
  /** The room that the database has. */
  readonly disk: Disk
  /** The principals that were served since the last write of `last_seen`, by id. */
  readonly seen: Map<string, Principal>
  /** Requests under way. */
  readonly drain: Drain
  /** The bytes that they hold. */
  readonly budget: Budget
  /**
   * The listeners; null until they are open. `gateway.ts` alone sets them: a port may be known only then. And what makes
   * their routes anew.
   */
  readonly open: {
    listeners: Listeners | null
    reroute: () => void
    /** Counts the anchors that are late. */
    lateAnchors: () => Promise<number>
  }
  /**
   * The base URLs that clients reach the gateway by. Empty until the listeners are open, so read them when
   * they are needed.
   */
  readonly baseUrls: () => readonly string[]
  /** `iss` of access tokens. */
  readonly issuer: () => string
  readonly keys: TokenKeys
  /** The keys that sign the checkpoints of the ledger's tree. */
  readonly logKeys: LogKeys
  readonly sealer: Sealer
  readonly logins: Logins
  /** The keys of commitments. */
  readonly subjectKeys: SubjectKeys
  /** The changes of one object, one after the other, whichever configuration is in force. */
  readonly oneAtATime: OneAtATime
  readonly rehearsalPlaces: RehearsalPlaces
  readonly ledgerPlaces: LedgerPlaces
  readonly quota: Quota
  readonly renewals: Renewals
  readonly setup: Setup
  /** The connections to LLM providers. */
  readonly upstream: Upstream
  /** The name servers, `address` or `address:port`; undefined: the machine's. */
  readonly nameServers: readonly string[] | undefined
  /** The look-up of the identity provider's names, whichever configuration is in force. */
  readonly identityProviderNames: KeptNames
  /** The clients' connections, and the descriptors that they share with all else. */
  readonly descriptors: Descriptors
  /** Of sign-ins by the identity provider, whichever configuration is in force. */
  readonly signInThrottles: Pick<SigningIn, 'wrongCodes' | 'refusedRows' | 'exchanges' | 'signIns'>
  readonly idempotencyKeys: IdempotencyKeys
  /** The models that providers ran in place of those that they were asked for, since the process started. */
  readonly modelMismatches: ModelMismatches
  /** Lists of models, as the providers last gave them. */
  readonly catalogue: Catalogue
  readonly mcp: Mcp
  /** The pages of the dashboard that follow what is recorded. */
  readonly followers: Followers
  /** The plugins that remember something: made once, whichever configuration is in force. */
  readonly plugins: Omit<PipelineSources, 'configuration' | 'inForce' | 'mcp'>
  readonly hasAdminSecret: () => Promise<boolean>
  /** Has the listeners show the server's certificate that lies in the data directory now. */
  readonly renewCertificate: () => Promise<void>
  /** Has this process use the CA and the names that the database holds, where they are others by now. */
  readonly followAuthority: () => Promise<void>
}

/** The time as the machine says it, and the time that passes whatever it says. ms. */
export type Clocks = Pick<Services, 'clock' | 'monotonic'>

/** Facts from outside of the process that services depend on. */
interface Surroundings {
  /** The descriptors that the process may open; null: any number. */
  readonly descriptorLimit?: number | null
  readonly env: Environment
  /** Default: the machine's. */
  readonly nameServers?: readonly string[] | undefined
}

/**
 * Makes the services on an open data directory. Its `close`, `upstream.close` and `mcp.close` release all
 * that they hold open.
 */
export async function openServices(
  dataDirectory: DataDirectory,
  logs: Logs,
  { clock, monotonic }: Clocks,
  { env, nameServers, descriptorLimit }: Surroundings,
): Promise<Services> {
  const { settings, database, ledger, passphrase } = dataDirectory
  const outcomes = new Outcomes(ledger, database, (error) =>
    logs.log.error({ err: error }, 'an outcome row was lost'),
  )
  const disk = new Disk(
    database.file === null ? settings.dataDir : dirname(database.file),
    settings.diskReserveBytes,
    logs.log,
  )
  await disk.look()
  const open: Services['open'] = {
    ...{ listeners: null, reroute: () => {} },
    lateAnchors: () => Promise.resolve(0),
  }
  const baseUrls = (): readonly string[] => settings.publicUrls ?? open.listeners?.baseUrls ?? []
  const issuer = (): string => baseUrls()[0] ?? ''
  const logKeys = new LogKeys({ database, ledger, passphrase, clock })
  const { keys, nonceSecret, subjectKeys } = await database.alone(async () => {
    await openTree(logKeys, database, dataDirectory.names)
    return {
      keys: await openTokenKeys({ database, ledger, passphrase, clock }),
      nonceSecret: await openNonceSecret(database, ledger, clock()),
      subjectKeys: await openSubjectKeys(database, ledger, passphrase, clock()),
    }
  })
  const stored = (): ReturnType<typeof readSecret> => readSecret(database)
  const held = heldLimits(settings)
  if (settings.heldMib !== null && held.whole < settings.heldMib * MIB)
    logs.log.warn(
      { held_mib: Math.floor(held.whole / MIB) },
      "MCP_PROXY_HELD_MIB is more than a quarter of V8's heap, and was lowered to that: raise --max-old-space-size",
    )
  const budget = new Budget(held, () => metrics.overBudget.inc())
  const descriptors = new Descriptors(settings.adminListen !== null, descriptorLimit, (outcome) =>
    metrics.fullConnections.inc({ outcome }),
  )
  const metrics = createMetrics({
    descriptors,
    waiting: () => ledger.waiting,
    owed: () => outcomes.owed,
    held: () => budget.held,
    unsealed: () => countUnsealed(database),
    lateAnchors: () => open.lateAnchors(),
    quarantined: () => countQuarantinedTools(database),
    unreadable: () => countUnreadableResources(database),
    diskFree: () => disk.free,
    diskReserve: () => disk.reserve,
    failing: () => ledger.failing,
    lostLines: () => logs.losses.lost,
    reachable: () => answers(database),
    listening: () => database.notices.listening,
    certificates: () => certificateEnds(dataDirectory),
  })
  const throttle = (topic: string): Throttle => sharedThrottle(monotonic, database.notices, topic)
  const secretUse = new SecretUse({ database, ledger, log: logs.log, metrics, clock })
  const recognised = recognisedSenders({ database, ledger, subjectKeys, log: logs.log, clock })
  await recognised.load()
  const secret = adminSecret(
    {
      stored,
      environment: settings.adminSecret ?? '',
      unchanged: secretUnchanged(database),
      recognised,
      onUse: (arrival) => secretUse.note(arrival),
    },
    throttle('wrong-secret'),
  )
  const { pinned: pinsOf, bySpiffeId, session: findSession } = strangersQuestions(database)
  const pinNow = pin(pinsOf('asked'), subjectKeys, bySpiffeId, monotonic)
  const sessions = openSessions({
    ...{ database, ledger, subjectKeys, settings, findSession },
    pin: pinNow,
    log: logs.log,
  })
  const pinned = pin(pinsOf(), subjectKeys, bySpiffeId, monotonic)
  // What another process destroys is forgotten here too.
  database.notices.hear(AUTHORITY, () => subjectKeys.known.clear())
  const oneAtATime = new OneAtATime()
  const renew = (): Promise<void> => renewCertificate(dataDirectory, open.listeners, clock).run()
  const follow = follower(dataDirectory, clock, async () => {
    await database.alone(() => openTree(logKeys, database, dataDirectory.names))
    await renew()
    open.reroute()
  })
  const followAuthority = (): Promise<void> => oneAtATime.run('authority', follow)
  database.notices.hear(
    NAMED,
    () => void followAuthority().catch((error: unknown) => logs.log.error({ err: error }, UNFOLLOWED)),
  )
  return {
    dataDirectory,
    logs,
    metrics,
    budget,
    clock,
    monotonic,
    ledger,
    outcomes,
    anonymous: new AnonymousRefusals(clock()),
    summaries: new RefusalSummaries(monotonic, () => disk.low),
    disk,
    seen: new Map(),
    drain: new Drain(),
    open,
    baseUrls,
    issuer,
    keys,
    subjectKeys,
    oneAtATime,
    rehearsalPlaces: new RehearsalPlaces(),
    ledgerPlaces: new LedgerPlaces(),
    logKeys,
    sealer: new Sealer({ database, ledger, keys: logKeys, clock }),
    logins: new Logins(nonceSecret),
    quota: tokenQuota(monotonic, () => disk.low, database.notices),
    renewals: new Renewals(monotonic),
    descriptors,
    setup: new Setup(subjectKeys.derived('setup code'), throttle('wrong-setup-code')),
    signInThrottles: {
      wrongCodes: throttle('wrong-code'),
      refusedRows: new Throttle(monotonic),
      exchanges: new FairLine(),
      signIns: signInQuota(monotonic, () => disk.low, database.notices),
    },
    upstream: openUpstream({ names: new KeptNames({ servers: nameServers }) }),
    nameServers,
    identityProviderNames: new KeptNames({ servers: nameServers }),
    idempotencyKeys: idempotencyKeys(subjectKeys.derived('llm idempotency key')),
    modelMismatches: new ModelMismatches((provider) => metrics.modelMismatches.inc({ provider })),
    catalogue: new Catalogue(),
    mcp: openMcp({
      database,
      ledger,
      upstreamSecret: secretOf(env, settings.secretsDir),
      allowPrivate: settings.allowPrivateUpstreams,
      resolve: new KeptNames({ servers: nameServers }).resolve,
      secret: nonceSecret,
      clock,
    }),
    followers: new Followers({ last: () => database.rowCounts.last(), log: logs.log }),
    plugins: {
      operators: {
        secret,
        lookup: pinsOf('asked'),
        unchanged: authorityUnchanged(database),
      },
      sessions,
      adminUrls: () => [...new Set([...baseUrls(), ...(open.listeners ? [open.listeners.adminUrl] : [])])],
      metricsToken: settings.metricsToken,
      beforeFirstSecret: beforeFirstSecret(stored),
      pin: pinned,
      pinNow,
      again: stillPinned(pinned, monotonic),
      apiKey: apiKey((keyId) => findApiKey(database, keyId), throttle('wrong-api-key')),
      constrained: {
        nonces: new Nonces(nonceSecret),
        baseUrls,
        tokens: tokenVerifier({ issuer, audiences: () => resourcesOf(baseUrls()), key: keys.verifier }),
      },
      claims: { ledger, database },
    },
    hasAdminSecret: async () => {
      const { hash, disabled } = await stored()
      return disabled || hash !== '' || settings.adminSecret !== null
    },
    renewCertificate: renew,
    followAuthority,
  }
}

const UNFOLLOWED = 'the CA that the database holds cannot be used yet'

/** A throttle whose failures count wherever they were made. While processes do not hear each other, each counts its own. */
function sharedThrottle(now: Monotonic, notices: Notices, topic: string): Throttle {
  const throttle = new Throttle(now, (who) => notices.tell(topic, who))
  notices.hear(topic, (who) => throttle.heard(who))
  return throttle
}

const MIB = 1024 * 1024

/**
 * Chooses how many bytes calls may hold. While it is judged, a body costs up to three times its length (its
 * bytes, its text, its values), so that a quarter of the memory leaves room for everything else. Half of it for
 * one principal: 64 prompts of 4 MiB at once with the default. The bytes lie outside V8's heap and the values
 * in it, two bytes for one where a text is not Latin-1: no process has more than a quarter of its heap, whatever was
 * set, for V8 ends it where that is full. `heapBytes`: the most that the heap may grow to.
 */
export function heldLimits(
  { heldMib, heldPerPrincipalMib }: Pick<Settings, 'heldMib' | 'heldPerPrincipalMib'>,
  heapBytes = getHeapStatistics().heap_size_limit,
): HeldLimits {
  // Zero, or more than the machine has, where nothing is constrained.
  const memory = Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY)
  const all = heldMib === null ? Math.min(Math.max(memory / 4, 64 * MIB), 512 * MIB) : heldMib * MIB
  const whole = Math.min(all, heapBytes / 4)
  const share = heldPerPrincipalMib === null ? whole / 2 : Math.min(heldPerPrincipalMib * MIB, whole)
  // An MCP message fits, for a refusal that says why.
  return { whole, share, little: Math.min(share, Math.max(whole / 16, 8 * MIB)) }
}
