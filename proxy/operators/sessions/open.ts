import type { Logger } from 'pino'
import type { Database } from '../../../db/database.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import { readSecret, secretUnchanged } from '../../../db/operators/secret.ts'
import { sessionNotEnded, touchSession } from '../../../db/operators/sessions.ts'
import { authorityUnchanged } from '../../../db/principals/pins.ts'
import type { NoticeChannel } from '../../../db/support/notices.ts'
import {
  BrowserSessions,
  type SessionRules,
  type StoredSessionDependencies,
} from '../../../plugins/operators/sessions.ts'
import type { PinnedCaller } from '../../../plugins/pin/pin.ts'
import type { SubjectKeys } from '../../../plugins/pin/subject-keys.ts'
import type { Arrival, Plugin } from '../../../plugins/plugin.ts'
import { PrincipalQuota } from '../../../plugins/secrets/quota.ts'
import type { MonotonicClock } from '../../../plugins/secrets/throttle.ts'
import type { Settings } from '../../boot/settings.ts'
import { readClaimMapping } from '../oidc/mapping.ts'
import type { OperatorsOptions } from '../options.ts'

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
