import type { Database } from '../../db/database.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { forgetGrants, hasExpiredGrants } from '../../db/people/grants.ts'
import type { PeriodicTask } from './rounds.ts'

interface PruneGrantsDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly clock: () => number
}

const TASK = 'prune-grants'

/** Forgets grants that have expired, in the process that leads. Their own rows say until when they hold. */
export const pruneGrants = ({ database, ledger, clock }: PruneGrantsDependencies): PeriodicTask => ({
  name: TASK,
  everyMs: 60_000,
  run: async () => {
    if (database.leads(TASK) && (await hasExpiredGrants(database, clock())))
      await ledger.commit({ statements: [forgetGrants(database, clock())], entries: [] })
  },
})
