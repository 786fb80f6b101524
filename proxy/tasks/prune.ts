import type { Database } from '../../db/database.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { hasOldMeters, pruneMeters } from '../../db/limits/store.ts'
import { forgetGrants, hasExpiredGrants } from '../../db/people/grants.ts'
import { prunePeopleStates } from '../../db/people/states.ts'
import { nextWithStates, pruneStates } from '../../db/provider-states.ts'
import type { PeriodicTask } from './rounds.ts'

interface PruneDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly clock: () => number
}

const HOUR_MS = 3_600_000
const METERS_TASK = 'prune-limit-meters'

/** Forgets the meters of windows that were over long ago, in the process that leads. */
export const pruneLimitMeters = ({ database, ledger, clock }: PruneDependencies): PeriodicTask => ({
  name: METERS_TASK,
  everyMs: HOUR_MS,
  run: async () => {
    while (database.leads(METERS_TASK) && (await hasOldMeters(database, clock())))
      await ledger.commit({ statements: [pruneMeters(database, clock())], entries: [] })
  },
})

const GRANTS_TASK = 'prune-grants'

/** Forgets grants that have expired, in the process that leads. Their own rows say until when they hold. */
export const pruneGrants = ({ database, ledger, clock }: PruneDependencies): PeriodicTask => ({
  name: GRANTS_TASK,
  everyMs: 60_000,
  run: async () => {
    if (database.leads(GRANTS_TASK) && (await hasExpiredGrants(database, clock())))
      await ledger.commit({ statements: [forgetGrants(database, clock())], entries: [] })
  },
})

const PEOPLE_TASK = 'prune-people-states'

/** Forgets sign-ins, codes and refresh tokens of people that have expired. */
export const prunePeople = ({ database, ledger, clock }: PruneDependencies): PeriodicTask => ({
  name: PEOPLE_TASK,
  everyMs: 60_000,
  run: async () => {
    if (!database.leads(PEOPLE_TASK)) return
    await ledger.commit({ statements: prunePeopleStates(database, clock()), entries: [] })
  },
})

/** Writes, once the ledger takes it, what answers have stated meanwhile. */
export const writeProviderStates = (states: { readonly write: () => void }): PeriodicTask => ({
  name: 'write-provider-states',
  everyMs: 1_000,
  run: async () => states.write(),
})

const STATES_TASK = 'prune-provider-states'
/** The principals of one run: a gateway that does nothing else asks the database little. */
const MAX_PRINCIPALS = 10

/** Forgets the ids of providers' answers that are too old or too many, those of some principals at a time. */
export function pruneProviderStates({ database, ledger, clock }: PruneDependencies): PeriodicTask {
  let last = ''
  return {
    name: STATES_TASK,
    everyMs: 10_000,
    run: async () => {
      for (let visited = 0; visited < MAX_PRINCIPALS && database.leads(STATES_TASK); visited += 1) {
        const ref = await nextWithStates(database, last)
        last = ref ?? ''
        if (ref === null) return
        await ledger.commit({ statements: pruneStates(database, ref, clock()), entries: [] })
      }
    },
  }
}
