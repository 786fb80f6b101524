import type { Database } from '../../db/database.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { nextWithStates, pruneStates } from '../../db/provider-states.ts'
import type { PeriodicTask } from './rounds.ts'

interface PruneDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly clock: () => number
}

/** Writes, once the ledger takes it, what answers have stated meanwhile. */
export const writeProviderStates = (states: { readonly write: () => void }): PeriodicTask => ({
  name: 'write-provider-states',
  everyMs: 1_000,
  run: async () => states.write(),
})

const PRUNE_TASK = 'prune-provider-states'
/** The principals of one run: a gateway that does nothing else asks the database little. */
const MAX_PRINCIPALS = 10

/** Forgets the ids of providers' answers that are too old or too many, those of some principals at a time. */
export function pruneProviderStates({ database, ledger, clock }: PruneDependencies): PeriodicTask {
  let last = ''
  return {
    name: PRUNE_TASK,
    everyMs: 10_000,
    run: async () => {
      for (let visited = 0; visited < MAX_PRINCIPALS && database.leads(PRUNE_TASK); visited += 1) {
        const ref = await nextWithStates(database, last)
        last = ref ?? ''
        if (ref === null) return
        await ledger.commit({ statements: pruneStates(database, ref, clock()), entries: [] })
      }
    },
  }
}
