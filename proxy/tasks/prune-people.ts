import type { Database } from '../../db/database.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { prunePeopleStates } from '../../db/people/states.ts'
import type { PeriodicTask } from './rounds.ts'

interface PeoplePruneDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly clock: () => number
}

const PRUNE_TASK = 'prune-people-states'

/** Forgets sign-ins, codes and refresh tokens of people that have expired. */
export const prunePeople = ({ database, ledger, clock }: PeoplePruneDependencies): PeriodicTask => ({
  name: PRUNE_TASK,
  everyMs: 60_000,
  run: async () => {
    if (!database.leads(PRUNE_TASK)) return
    await ledger.commit({ statements: prunePeopleStates(database, clock()), entries: [] })
  },
})
