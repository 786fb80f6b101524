import type { Database } from '../../db/database.ts'
import { LedgerError } from '../../db/ledger/record/entry.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { claimOnce } from '../../db/single-uses.ts'
import type { DpopProof } from '../facts.ts'
import type { Plugin } from '../plugin.ts'
import { Refusal, toRefusal } from '../refusal.ts'

/** The ledger, to claim a proof in that no decision row goes with. */
export interface ProofClaimDependencies {
  readonly ledger: Pick<Ledger, 'commit'>
  readonly database: Database
}

/**
 * Claims a proof for endpoints that record no decision: of many copies exactly one passes, on whichever
 * replica, also across a crash (RFC 9449 §11.1). Refuses with `proof_invalid`; with
 * `audit_unavailable` if the ledger cannot be written. `of`: a `change` by an operator finds room in the
 * ledger's queue while calls fill it.
 */
export function singleUse(
  { ledger, database }: ProofClaimDependencies,
  of?: 'change',
): Plugin<{ proof: DpopProof | null }, object> {
  return {
    name: 'single_use',
    admit: async ({ proof }) => {
      if (!proof) return {}
      try {
        await ledger.commit({
          statements: [claimOnce(database, proof.replayKey, proof.expiresAt)],
          entries: [],
          ofChange: of === 'change',
        })
        return {}
      } catch (error) {
        throw isReplay(error)
          ? new Refusal('proof_invalid', { cause: error })
          : toRefusal(error, 'audit_unavailable')
      }
    },
  }
}

/** Returns whether a unit failed because something in it had been claimed before. */
export const isReplay = (error: unknown): boolean =>
  error instanceof LedgerError && error.code === 'duplicate'
