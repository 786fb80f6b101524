import type { CallCommitments } from '../../../plugins/facts.ts'

/** The uses of a principal's key for approvals (docs/ledger.md#commitments). */
const DIGEST_KEY = 'digests of calls to approve'
const SEAL_KEY = 'arguments of calls to approve'

type DerivingKey = Pick<CallCommitments, 'derived'>

/** Returns the key that the arguments of a principal's calls are sealed with while they wait. */
export const argumentsKey = (commitments: DerivingKey): Buffer => commitments.derived(SEAL_KEY)

export const callDigestKey = (commitments: DerivingKey): Buffer => commitments.derived(DIGEST_KEY)
