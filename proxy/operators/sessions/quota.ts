import type { NoticeChannel } from '../../../db/support/notices.ts'
import { PrincipalQuota } from '../../../plugins/secrets/quota.ts'
import type { MonotonicClock } from '../../../plugins/secrets/throttle.ts'

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
