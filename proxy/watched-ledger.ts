import { LedgerError } from '../db/audit/entry.ts'
import type { Ledger } from '../db/audit/ledger.ts'

/** A ledger that remembers whether its last write held. */
export interface WatchedLedger extends Ledger {
  readonly failing: boolean
}

/** Watches every commit of a ledger, for `/ready`. A refused unit (`conflict`, `duplicate`) is not a failing ledger. */
export function watched(ledger: Ledger): WatchedLedger {
  let failing = false
  return {
    get failing() {
      return failing
    },
    get waiting() {
      return ledger.waiting
    },
    get head() {
      return ledger.head
    },
    failed: ledger.failed,
    recover: (at, configDigest) => ledger.recover(at, configDigest),
    close: () => ledger.close(),
    commit: async (unit) => {
      try {
        const sealed = await ledger.commit(unit)
        failing = false
        return sealed
      } catch (error) {
        if (error instanceof LedgerError && error.code === 'unavailable') failing = true
        throw error
      }
    },
  }
}
