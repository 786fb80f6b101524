import type { Database } from '../../db/database.ts'
import { LedgerError } from '../../db/ledger/record/entry.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import {
  approvalDetail,
  decideApproval,
  hasOldApprovals,
  overdueApprovals,
  pruneApprovals,
} from '../../db/mcp/approvals.ts'
import { noteEntry } from '../../plugins/audit/entries.ts'
import type { PeriodicTask } from './rounds.ts'

const AT_ONCE = 100
const TASK = 'expire-approvals'

interface ApprovalExpiryDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly configDigest: () => string
  readonly clock: () => number
}

/** Ends the approvals that nobody has given in time, each with one row, and forgets old ones. */
export const expireApprovals = ({
  database,
  ledger,
  configDigest,
  clock,
}: ApprovalExpiryDependencies): PeriodicTask => ({
  name: TASK,
  everyMs: 30_000,
  atStart: true,
  run: async () => {
    if (!database.leads(TASK)) return
    const at = clock()
    for (const approval of await overdueApprovals(database, at, AT_ONCE)) {
      const note = { action: 'approval.expired', detail: approvalDetail(approval) }
      const ended = {
        id: approval.approval_id,
        status: 'expired',
        by: null,
        via: null,
        reason: null,
      } as const
      try {
        await ledger.commit({
          statements: [decideApproval(database, { ...ended, at })],
          entries: [noteEntry(note, at, configDigest())],
        })
      } catch (error) {
        // Somebody has decided it at the last moment.
        if (!(error instanceof LedgerError) || error.code !== 'conflict') throw error
      }
    }
    while (await hasOldApprovals(database, at))
      await ledger.commit({ statements: [pruneApprovals(database, at)], entries: [] })
  },
})
