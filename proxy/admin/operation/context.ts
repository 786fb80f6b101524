import type {
  OrganisationAuthority,
  RotationScope,
  StoredAuthority,
} from '../../../certs/authority/rotation.ts'
import type { Database } from '../../../db/database.ts'
import type { LedgerEntry } from '../../../db/ledger/record/entry.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import type { WalkProgress } from '../../../db/ledger/rehearsal/rehearse.ts'
import type { WalkResults, WalkTask, WalkTaskOf } from '../../../db/rehearsal/thread.ts'
import type { JsonObject } from '../../../db/support/json.ts'
import type { LedgerStatement } from '../../../db/support/statement.ts'
import type { PartialDecisionFacts } from '../../../plugins/audit/decision.ts'
import type { ActingOperator, ChangeAuthor } from '../../../plugins/operators/actor.ts'
import type { TwoPersonKind } from '../../../plugins/operators/capabilities.ts'
import type { BrowserSession } from '../../../plugins/operators/operator.ts'
import type { SessionRules } from '../../../plugins/operators/sessions.ts'
import type { EditedTexts } from '../../../plugins/pin/edited-texts.ts'
import type { SubjectKeys } from '../../../plugins/pin/subject-keys.ts'
import type { Arrival, HangupSignal, Pipeline } from '../../../plugins/plugin.ts'
import type { Refusal } from '../../../plugins/refusal.ts'
import type { OrganisationNames } from '../../boot/names.ts'
import type { AccountDesk } from '../../mcp/accounts/consent-links.ts'
import type { InspectUpstream } from '../../mcp/pinning/inspect.ts'
import type {
  ArchiveAlarm,
  ArchivePlan,
  ArchiveStanding,
  ExportStanding,
  ListedSegment,
} from './archive-shapes.ts'
import type { LedgerPlaces, RehearsalPlaces } from './ledger-places.ts'
import type { KeyedQueue } from './one-at-a-time.ts'
import type { FoundPrices } from './price-shapes.ts'
import type { ProviderList } from './provider-shapes.ts'
import type { AnchorStanding } from './shapes.ts'

/** The state of the readings of a followed bundle. ms since the epoch. */
export interface BundleReading {
  readonly readAt: number | null
  readonly problem: string | null
  readonly failingSince: number | null
}

/** A call to judge and not to make. */
export interface HypotheticalCall {
  readonly path: string
  readonly pipeline: Pick<Pipeline<Arrival>, 'decide' | 'names'>
  /** The checks that are named and not asked: they may count. */
  readonly notAsked: readonly string[]
}

/** The result of asking a provider for its list of models. `isNew`: it was asked for this caller. */
interface AskedProvider {
  readonly at: number
  readonly ms: number
  readonly models: number | null
  readonly problem: string | null
  readonly isNew: boolean
}

/** The sinks that rows are sent to. Instants are ms since the epoch. */
export interface ExportDesk {
  readonly list: (at: number) => Promise<readonly ExportStanding[]>
  /** Makes a sink get a stream again; null: there is no such sink. `from`: where its cursor stands. */
  readonly rewind: (
    sink: string,
    row: { readonly stream: string; readonly seq: number },
    at: number,
  ) => Promise<{
    readonly head: number
    readonly from: number
    readonly statements: readonly LedgerStatement[]
  } | null>
}

/** The archive of old rows. Instants are ms since the epoch. */
export interface ArchiveDesk {
  /** Null: there is no 90-archive.yaml. */
  readonly options: ArchiveStanding['options']
  readonly alarm: (at: number) => Promise<ArchiveAlarm>
  readonly standing: (at: number) => Promise<ArchiveStanding>
  /** Says what would move now. */
  readonly plan: (olderThan: string, at: number) => Promise<ArchivePlan>
  /** Lists the segments before a leaf, the newest first. */
  readonly list: (before: number, most: number) => Promise<readonly ListedSegment[]>
  /** Tells whether a segment, recorded until an instant (RFC 3339), may be forgotten without a reason. */
  readonly mayForget: (until: string, at: number) => boolean
  /** Has the process that leads look for the work that was asked for. */
  readonly wake: () => void
}

/** The services that operations work with. One for each configuration in force. */
export interface AdminContext {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly authority: OrganisationAuthority
  /** Returns the same, after a look at the database: what is certified must be of the CA that issues there. */
  readonly issuing: () => Promise<OrganisationAuthority>
  /** The keys of commitments. */
  readonly subjectKeys: Pick<SubjectKeys, 'makeFor' | 'find' | 'forget' | 'derived'>
  readonly oneAtATime: KeyedQueue
  readonly organisation: string
  readonly trustDomain: string
  readonly naming: OrganisationNaming
  readonly rotation: CaRotation
  /** The digest of the configuration in force, which stands in each audit row. */
  readonly configDigest: string
  /** The time that a replaced certificate or key stays valid if the caller names none. Hours. */
  readonly rotationGraceHours: number
  /** The followed bundles of the configuration, each with the state of its readings; null: not read yet. */
  readonly trustBundles: () => ReadonlyMap<string, BundleReading | null>
  /** Signs access tokens with a new key; `entry` makes the audit row of its key id, which is returned. */
  readonly rotateSigningKey: (entry: (kid: string) => LedgerEntry) => Promise<string>
  /** The same of checkpoints: `entry` makes the row of the verifier key, which is returned. */
  readonly rotateAuditKey: (entry: (vkey: string) => LedgerEntry) => Promise<string>
  /** The progress of each anchor of the configuration with the log's checkpoints. */
  readonly anchors: () => Promise<readonly AnchorStanding[]>
  /** True if `MCP_PROXY_ADMIN_SECRET` is set: it counts while no secret is stored. */
  readonly hasEnvironmentSecret: boolean
  readonly twoPerson: readonly TwoPersonKind[]
  /** True if the identity provider's people may sign in as the operator of this name. */
  readonly signsIn: (operatorName: string) => Promise<boolean>
  /** Walks over the recorded calls, away from this thread. Rejects with the signal's reason when it fires. */
  readonly walkCalls: <Kind extends WalkTask['kind']>(
    task: WalkTaskOf<Kind>,
    signal: AbortSignal,
    onProgress?: (progress: WalkProgress) => void,
  ) => Promise<WalkResults[Kind]>
  readonly rehearsalPlaces: RehearsalPlaces
  readonly ledgerPlaces: LedgerPlaces
  readonly sealing: { readonly stopped: boolean }
  readonly archive: ArchiveDesk
  readonly exports: ExportDesk
  readonly editedTexts: Pick<EditedTexts, 'list' | 'note'>
  /** Finds the prices that calls of a model are charged by. */
  readonly findPrices: (model: string) => FoundPrices
  readonly requireRehearsal: 'always' | 'when_refusing' | 'never'
  readonly expected: ExpectationsInForce
  /** The configuration's lifetimes of sessions. */
  readonly sessionRules: Pick<SessionRules, 'idleMs' | 'absoluteMs'>
  /**
   * Writes the row of a change that its caller may not make, durable before it resolves. `action`: of the
   * change.
   */
  readonly recordDenied: (
    facts: PartialDecisionFacts & { readonly actor: ActingOperator },
    action: string,
    refusal: Refusal,
  ) => Promise<void>
  /** The questions of calls that nobody makes, as real ones are asked them. */
  readonly whatIf: {
    readonly model: (name: string, dialect: 'openai' | 'anthropic' | undefined) => HypotheticalCall
    readonly tool: HypotheticalCall
  }
  readonly providers: {
    /** Describes them, with the figures that this gateway has at an instant. */
    readonly list: (at: number) => ProviderList
    /** Asks one for its list of models, unless it was asked just now. Null: there is none of this name. */
    readonly ask: (name: string) => Promise<AskedProvider | null>
  }
  /** Accounts of principals at MCP servers; null, or absent: the listener for people is closed. */
  readonly accounts?: AccountDesk | null
  readonly mcp: {
    readonly inspect: InspectUpstream
    /** MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS. */
    readonly allowPrivateUpstreams: boolean
    /** MCP_PROXY_SECRETS_DIR. */
    readonly secretsDir: string
    /** MCP_PROXY_PEOPLE_URL; null: the listener for people is closed. */
    readonly peopleUrl: string | null
  }
}

/** The means to name the organisation in a browser (docs/dashboard.md#organisation). */
export interface OrganisationNaming {
  /** Which of the two names the environment sets. */
  readonly fixed: { readonly org: boolean; readonly trustDomain: boolean }
  /** Makes a CA and the statement that stores it in place of the one in use. Stores nothing. */
  readonly makeAuthority: (
    names: OrganisationNames,
    at: number,
  ) => Promise<{ readonly rootPem: string; readonly statements: readonly LedgerStatement[] }>
  /** Has this process use the CA and names of the database. The others hear of the change. */
  readonly follow: () => Promise<void>
}

/** The CAs as they were read, to be stored again. */
export interface StoredCas {
  /** The text that a step replaces; undefined: the database has none yet. */
  readonly text: string | undefined
  readonly stored: StoredAuthority
}

/** The means to replace the organisation's CA (docs/operating.md#replace-the-ca). */
export interface CaRotation {
  readonly read: () => Promise<StoredCas>
  /** Makes the CA that comes next. Stores nothing. Rejects with one sentence if it cannot be made. */
  readonly prepare: (
    before: StoredCas,
    options: OrganisationNames & { readonly scope: RotationScope; readonly at: number },
  ) => Promise<StoredAuthority>
  /** Returns the statements of a step: they change nothing if another one was taken since `before` was read. */
  readonly store: (
    before: StoredCas,
    next: StoredAuthority,
    at: number,
  ) => Promise<readonly LedgerStatement[]>
}

/** Additions of a change's questions to its transaction. */
export interface ChangeConditionsMet {
  /** Members of each row of the change, in addition to its own. Absent: none. */
  readonly rowDetail?: JsonObject
  /** Stored with the first transaction of the change. Absent: nobody had to confirm it. */
  readonly confirmation?: ChangeConfirmation
}

export interface ChangeConfirmation {
  /** Members of each row of that transaction. */
  readonly detail: JsonObject
  /** Comes before the statements of the change. */
  readonly statement: LedgerStatement
  /** Comes after the rows of the change. */
  readonly entry: LedgerEntry
  /** True once it is stored: a later transaction of the same change does not store it again. */
  stored: boolean
}

/** The one who performs an operation, and when. */
export interface AdminCaller extends ChangeConditionsMet {
  /** The demand that its caller has met before the operation runs. Absent: nothing yet. */
  readonly demanded?: readonly string[]
  readonly id: string
  /** ms since the epoch. */
  readonly at: number
  readonly actor: ActingOperator
  /** Absent: it did not come by one. */
  readonly session?: BrowserSession
  readonly remoteAddress: string
  /** Tells when the caller no longer waits. */
  readonly hangup: HangupSignal
}

/** The author of a change and its time, as its row names them. */
export interface ChangeAuthorship extends Pick<AdminCaller, 'id' | 'at'>, ChangeConditionsMet {
  readonly actor: ChangeAuthor
}

export interface ExpectationModes {
  readonly enforceToolsCall: boolean
  readonly httpGet: boolean
}

/** A sentence of the operators' file that must stay true. */
export interface Expectation {
  readonly line: number
  readonly sentence: string
}

/** The sentences in force, and the modes by which they are judged in addition to authority. */
export interface ExpectationsInForce extends ExpectationModes {
  readonly sentences: readonly Expectation[]
}

/** An expectation before a change, and after it. */
export interface ExpectationOutcome extends Expectation {
  readonly before: boolean
  readonly after: boolean
}
