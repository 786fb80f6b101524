import type { NoticeChannel } from '../../db/support/notices.ts'
import { PrincipalQuota } from '../../plugins/secrets/quota.ts'
import type { MonotonicClock } from '../../plugins/secrets/throttle.ts'

/**
 * The tokens that one principal may have in a minute: each is a row of the ledger, and lasts up to 15
 * minutes.
 */
const MAX_TOKENS_PER_MINUTE = 600
/** The same while the disk is low. */
const MAX_TOKENS_PER_MINUTE_LOW = 60

/**
 * Makes the quota of tokens: every known principal is given one, even if it holds nothing, and nobody may
 * fill the disk with their rows (docs/threats.md#d3), whichever processes they ask. `low`: tells whether
 * little is left of the disk.
 */
export function tokenQuota(now: MonotonicClock, low: () => boolean, notices: NoticeChannel): PrincipalQuota {
  const most = (): number => (low() ? MAX_TOKENS_PER_MINUTE_LOW : MAX_TOKENS_PER_MINUTE)
  const quota = new PrincipalQuota(now, most, (principalId) => notices.notify(TAKEN, principalId))
  notices.on(TAKEN, (principalId) => quota.addRemote(principalId))
  return quota
}

const TAKEN = 'tokens-taken'
