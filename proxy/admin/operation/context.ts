import type { Authority } from '../../../certs/authority/authority.ts'
import type { Database } from '../../../db/database.ts'
import type { Entry } from '../../../db/ledger/record/entry.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import type { Progress } from '../../../db/ledger/rehearsal/task.ts'
import type { Walked, WalkTask } from '../../../db/rehearsal/messages.ts'
import type { WalkOf } from '../../../db/rehearsal/thread.ts'
import type { Statement } from '../../../db/support/statement.ts'
import type { Known } from '../../../plugins/audit/decision.ts'
import type { Actor, Author } from '../../../plugins/operators/actor.ts'
import type { TwoPersonKind } from '../../../plugins/operators/capabilities.ts'
import type { BrowserSession } from '../../../plugins/operators/operator.ts'
import type { SessionRules } from '../../../plugins/operators/sessions.ts'
import type { SubjectKeys } from '../../../plugins/pin/subject-keys.ts'
import type { Hangup } from '../../../plugins/plugin.ts'
import type { Refusal } from '../../../plugins/refusal.ts'
import type { Names } from '../../boot/names.ts'
import type { Inspect } from '../../mcp/pinning/inspect.ts'
import type { AnchorStanding } from './anchor-standing.ts'
import type { Expected } from './expected.ts'
import type { LedgerPlaces } from './ledger-places.ts'
import type { OneAtATime } from './one-at-a-time.ts'
import type { RehearsalPlaces } from './places.ts'

/** The services that operations work with. One for each configuration in force. */
export interface AdminContext {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly authority: Authority
  /** The keys of commitments. */
  readonly subjectKeys: Pick<SubjectKeys, 'makeFor' | 'find' | 'forget'>
  readonly oneAtATime: OneAtATime
  readonly organisation: string
  readonly trustDomain: string
  readonly naming: Naming
  /** The digest of the configuration in force, which stands in each audit row. */
  readonly configDigest: string
  /**
   * The time that a certificate or a key stays valid beside its successor where the caller names none. Hours.
   */
  readonly rotationGraceHours: number
  /**
   * Signs access tokens with a new key from now on; `entry` makes the audit row of its key id, which is
   * returned.
   */
  readonly rotateSigningKey: (entry: (kid: string) => Entry) => Promise<string>
  /** The same of checkpoints: `entry` makes the row of the verifier key, which is returned. */
  readonly rotateAuditKey: (entry: (vkey: string) => Entry) => Promise<string>
  /** How far each anchor of the configuration is with the checkpoints of the log. */
  readonly anchors: () => Promise<readonly AnchorStanding[]>
  /** True where `MCP_PROXY_ADMIN_SECRET` is set: it counts while no secret is stored. */
  readonly hasEnvironmentSecret: boolean
  /** The kinds of changes that need two operators. */
  readonly twoPerson: readonly TwoPersonKind[]
  /** Whether the identity provider's people may sign in as the operator of this name. */
  readonly signsIn: (operatorName: string) => Promise<boolean>
  /** Walks over the recorded calls, away from this thread. Rejects with the signal's reason when it fires. */
  readonly walkCalls: <Kind extends WalkTask['kind']>(
    task: WalkOf<Kind>,
    signal: AbortSignal,
    onProgress?: (progress: Progress) => void,
  ) => Promise<Walked[Kind]>
  readonly rehearsalPlaces: RehearsalPlaces
  readonly ledgerPlaces: LedgerPlaces
  /** Which changes of authority must name their rehearsal. */
  readonly requireRehearsal: 'always' | 'when_refusing' | 'never'
  /** What must stay true of authority. */
  readonly expected: Expected
  /** What the configuration says of how long sessions last. */
  readonly sessionRules: Pick<SessionRules, 'idleMs' | 'absoluteMs'>
  /**
   * Writes the row of a change that its caller may not make, durable before it resolves. `action`: of the change.
   */
  readonly recordDenied: (
    facts: Known & { readonly actor: Actor },
    action: string,
    refusal: Refusal,
  ) => Promise<void>
  readonly mcp: {
    readonly inspect: Inspect
    /** MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS. */
    readonly allowPrivateUpstreams: boolean
    /** MCP_PROXY_SECRETS_DIR. */
    readonly secretsDir: string
  }
}

/** What it takes to name the organisation in a browser (docs/dashboard.md#organisation). */
export interface Naming {
  /** Which of the two names the environment sets. */
  readonly fixed: { readonly org: boolean; readonly trustDomain: boolean }
  /** Makes a CA of these names, and the statement that stores it in place of the one in use. Stores nothing. */
  readonly makeAuthority: (
    names: Names,
    at: number,
  ) => Promise<{ readonly rootPem: string; readonly statement: Statement }>
  /** Has this process and its listeners use the CA and the names that the database holds, and tells all others. */
  readonly follow: () => Promise<void>
}

/** The one who performs an operation, and when. */
export interface Caller {
  /** What was asked of the caller before the operation runs. Absent: nothing yet. */
  readonly demanded?: readonly string[]
  /** `req_…`: the audit row's request id. */
  readonly id: string
  /** ms since the epoch. */
  readonly at: number
  readonly actor: Actor
  /** Absent: it did not come by one. */
  readonly session?: BrowserSession
  readonly remoteAddress: string
  /** Tells when the caller no longer waits. */
  readonly hangup: Hangup
}

/** Whose change it is, and when: all that its row says of that. */
export interface By extends Pick<Caller, 'id' | 'at'> {
  readonly actor: Author
}
