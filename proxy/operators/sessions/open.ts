import type { Logger } from 'pino'
import type { Database } from '../../../db/database.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import { readSecret, secretUnchanged } from '../../../db/operators/secret.ts'
import {
  endOldestSessions,
  endStoredSession,
  excessSessions,
  findSession,
  forgetSessions,
  insertSession,
  sessionNotEnded,
  touchSession,
} from '../../../db/operators/sessions.ts'
import { authorityUnchanged } from '../../../db/principals/pins.ts'
import type { JsonObject } from '../../../db/support/json.ts'
import type { NoticeChannel } from '../../../db/support/notices.ts'
import { type RowAssertion, timestamp } from '../../../db/support/statement.ts'
import type { ChangeAuthor } from '../../../plugins/operators/actor.ts'
import {
  BrowserSessions,
  SESSION_COOKIE,
  type SessionRules,
  type StoredSessionDependencies,
  setCookie,
} from '../../../plugins/operators/sessions.ts'
import type { PinnedCaller } from '../../../plugins/pin/pin.ts'
import type { SubjectKeys } from '../../../plugins/pin/subject-keys.ts'
import type { Arrival, Plugin } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { PrincipalQuota } from '../../../plugins/secrets/quota.ts'
import type { MonotonicClock } from '../../../plugins/secrets/throttle.ts'
import { commitChange } from '../../admin/operation/change.ts'
import type { Settings } from '../../boot/settings.ts'
import { readClaimMapping } from '../oidc/mapping.ts'
import type { OperatorsOptions } from '../options.ts'
import type { SignInContext } from '../signing-in.ts'

interface SessionStart {
  readonly id: string
  /** ms since the epoch. */
  readonly at: number
  readonly author: ChangeAuthor
  readonly via: 'oidc' | 'secret' | 'certificate'
  /** Null: nobody in particular, by the secret. */
  readonly principalId: string | null
  readonly marks: readonly string[]
  readonly amr: readonly string[]
  /** The person, and the session that it has with the identity provider. */
  readonly issuer: string | null
  readonly subject: string | null
  readonly providerSession: string | null
  /** The digest of the session that the browser has come with, which this one replaces; null: it has none. */
  readonly replaces: string | null
  /** Conditions for the beginning of the session. */
  readonly assertions: readonly RowAssertion[]
  readonly detail: JsonObject
}

/** The first digits of a session's digest, by which rows know it. */
export const ROW_DIGITS = 8

/**
 * Begins a session with its row `admin.sign_in`, and returns its cookie. The id is always new; the browser's
 * old session ends, and the oldest if its operator has too many. Refuses with `sign_in_throttled`.
 */
export async function beginSession(
  signing: Pick<SignInContext, 'context' | 'sessions' | 'rules' | 'signIns' | 'summaries'>,
  begun: SessionStart,
): Promise<string> {
  const { context, sessions, rules } = signing
  const { database } = context
  const { id: requestId, at, author, detail, principalId } = begun
  admitOnce(signing, begun)
  const { id, digest } = sessions.newId()
  const session = {
    id_sha256: digest,
    principal_id: principalId,
    via: begun.via,
    amr: begun.amr,
    issuer: begun.issuer,
    subject: begun.subject,
    provider_session: begun.providerSession,
    mapped_by: JSON.stringify(begun.marks),
    at,
    expiresAt: at + rules.absoluteMs,
  }
  const replaced = begun.replaces === null ? undefined : await findSession(database, begun.replaces)
  const ended = (await excessSessions(database, { principalId })).filter((one) => one !== replaced?.id_sha256)
  await commitChange(
    context,
    { id: requestId, at, actor: author },
    {
      action: 'admin.sign_in',
      detail: {
        ...detail,
        session: shortDigest(digest),
        session_sha256: digest,
        session_until: timestamp(session.expiresAt),
        ...(replaced && { replaces: shortDigest(replaced.id_sha256) }),
        ...(ended.length > 0 && { ends: ended.map(shortDigest) }),
      },
      assertions: begun.assertions,
      statements: [
        forgetSessions(database, at),
        ...(replaced ? [endStoredSession(database, replaced.id_sha256)] : []),
        insertSession(database, session),
        endOldestSessions(database, { principalId }, digest),
      ],
    },
  )
  return setCookie(SESSION_COOKIE, id, 'Strict')
}

const shortDigest = (digest: string): string => digest.slice(0, ROW_DIGITS)

function admitOnce(
  { signIns, summaries, context }: Pick<SignInContext, 'context' | 'signIns' | 'summaries'>,
  { id: requestId, at, author }: SessionStart,
): void {
  const waitS = signIns.consume(author.id)
  if (waitS === 0) return
  summaries.count({
    principal: { ref: author.id, type: author.type },
    action: 'admin.sign_in_refused',
    reason: 'sign_in_throttled',
    status: 'denied',
    refusedBy: 'sign_in',
    requiredCapability: null,
    authority: null,
    requestId,
    at,
    bodySha256: null,
    configDigest: context.configDigest,
  })
  throw new Refusal('sign_in_throttled', { headers: { 'retry-after': String(waitS) } })
}

const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS

export const sessionRulesOf = (inForce: () => { readonly operators: OperatorsOptions }) => (): SessionRules =>
  readSessionRules(inForce().operators)

export const readSessionRules = ({ session, oidc }: OperatorsOptions): SessionRules => ({
  idleMs: session.idle_minutes * MINUTE_MS,
  absoluteMs: session.absolute_hours * HOUR_MS,
  marks: readClaimMapping(oidc).marks,
})

/** The sessions that one operator may begin in a minute: each is a row of the ledger, and of the database. */
const MAX_SIGN_INS = 10
/** The same while the disk is low. */
const MAX_SIGN_INS_LOW = 2

/**
 * Makes the quota of sign-ins, across processes: an operator who holds nothing may sign in, but not fill the
 * disk. `low`: tells whether little is left of the disk.
 */
export function signInQuota(now: MonotonicClock, low: () => boolean, notices: NoticeChannel): PrincipalQuota {
  const most = (): number => (low() ? MAX_SIGN_INS_LOW : MAX_SIGN_INS)
  const quota = new PrincipalQuota(now, most, (operator) => notices.notify(SIGNED_IN, operator), 1)
  notices.on(SIGNED_IN, (operator) => quota.addRemote(operator))
  return quota
}

const SIGNED_IN = 'signed-in'

interface BrowserSessionDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'submit'>
  readonly subjectKeys: SubjectKeys
  readonly settings: Pick<Settings, 'adminSecret'>
  readonly pin: Plugin<Arrival, PinnedCaller>
  /** Finds a session by the digest of its cookie, as {@link StoredSessionDependencies.find}. */
  readonly findSession: StoredSessionDependencies['find']
  readonly log: Logger
}

export function openSessions({
  database,
  ledger,
  subjectKeys,
  settings,
  pin,
  findSession,
  log,
}: BrowserSessionDependencies): BrowserSessions {
  return new BrowserSessions({
    find: findSession,
    stands: sessionNotEnded(database),
    touch: (digest, before, at) =>
      ledger.submit(
        { statements: [touchSession(database, digest, before, at)], entries: [], lazy: true },
        (error) => {
          if (error) log.warn({ err: error }, 'the use of a session could not be kept')
        },
      ),
    secret: async () => {
      const { hash, disabled } = await readSecret(database)
      return disabled ? null : hash
    },
    secretUnchanged: secretUnchanged(database),
    environment: settings.adminSecret ?? '',
    unchanged: authorityUnchanged(database),
    keys: subjectKeys,
    pin,
    key: subjectKeys.derived('operator sessions'),
  })
}
