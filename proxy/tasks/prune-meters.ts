import type { Database } from '../../db/database.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { hasOldMeters, pruneMeters } from '../../db/limits/store.ts'
import type { PeriodicTask } from './rounds.ts'

interface PruneMetersDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly clock: () => number
}

const TASK = 'prune-limit-meters'
const HOUR_MS = 3_600_000

/** Forgets the meters of windows that were over long ago, in the process that leads. */
export const pruneLimitMeters = ({ database, ledger, clock }: PruneMetersDependencies): PeriodicTask => ({
  name: TASK,
  everyMs: HOUR_MS,
  run: async () => {
    while (database.leads(TASK) && (await hasOldMeters(database, clock())))
      await ledger.commit({ statements: [pruneMeters(database, clock())], entries: [] })
  },
})
