import type { Logger } from 'pino'
import type { Database } from '../../../db/database.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import { readSecret, secretUnchanged } from '../../../db/operators/secret.ts'
import { sessionNotEnded, touchSession } from '../../../db/operators/sessions.ts'
import { authorityUnchanged } from '../../../db/principals/pins.ts'
import { BrowserSessions, type StoredSessionDependencies } from '../../../plugins/operators/sessions.ts'
import type { PinnedCaller } from '../../../plugins/pin/pin.ts'
import type { SubjectKeys } from '../../../plugins/pin/subject-keys.ts'
import type { Arrival, Plugin } from '../../../plugins/plugin.ts'
import type { Settings } from '../../boot/settings.ts'

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
