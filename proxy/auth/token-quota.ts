import type { Notices } from '../../db/support/notices.ts'
import { Quota } from '../../plugins/secrets/quota.ts'
import type { Monotonic } from '../../plugins/secrets/throttle.ts'

/** The tokens that one principal may have in a minute: each is a row of the ledger, and lasts up to 15 minutes. */
const MOST = 600
/** The same while the disk is low. */
const MOST_LOW = 60

/**
 * Makes the quota of tokens: whoever is known is given one, also where it holds nothing, and nobody may fill the
 * disk with their rows (docs/threats.md#d3), whichever processes they ask. `low`: tells whether little is left of the disk.
 */
export function tokenQuota(now: Monotonic, low: () => boolean, notices: Notices): Quota {
  const most = (): number => (low() ? MOST_LOW : MOST)
  const quota = new Quota(now, most, (principalId) => notices.tell(TAKEN, principalId))
  notices.hear(TAKEN, (principalId) => quota.heard(principalId))
  return quota
}

const TAKEN = 'tokens-taken'
