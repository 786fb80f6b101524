import type { Notices } from '../../../db/support/notices.ts'
import { Quota } from '../../../plugins/secrets/quota.ts'
import type { Monotonic } from '../../../plugins/secrets/throttle.ts'

/** The sessions that one operator may begin in a minute: each is a row of the ledger, and of the database. */
const MAX_SIGN_INS = 10
/** The same while the disk is low. */
const MAX_SIGN_INS_LOW = 2

/**
 * Makes the quota of sign-ins: whoever is known may sign in, also where it holds nothing, and nobody may fill the disk
 * with that, whichever processes they ask. `low`: tells whether little is left of the disk.
 */
export function signInQuota(now: Monotonic, low: () => boolean, notices: Notices): Quota {
  const most = (): number => (low() ? MAX_SIGN_INS_LOW : MAX_SIGN_INS)
  const quota = new Quota(now, most, (operator) => notices.tell(SIGNED_IN, operator), 1)
  notices.hear(SIGNED_IN, (operator) => quota.heard(operator))
  return quota
}

const SIGNED_IN = 'signed-in'
