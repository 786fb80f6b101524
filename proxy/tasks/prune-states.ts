import type { Database } from '../../db/database.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { nextWithStates, pruneStates } from '../../db/provider-states.ts'
import type { PeriodicTask } from './rounds.ts'

interface PruneDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  /** Writes the ids that the ledger did not take yet. */
  readonly states: { readonly write: () => void }
  readonly clock: () => number
}

const NAME = 'prune-provider-states'

/** Forgets the ids of providers' answers that are too old or too many, those of one principal at a time. */
export function pruneProviderStates({ database, ledger, states, clock }: PruneDependencies): PeriodicTask {
  let last = ''
  return {
    name: NAME,
    everyMs: 1_000,
    run: async () => {
      states.write()
      if (!database.leads(NAME)) return
      const ref = await nextWithStates(database, last)
      last = ref ?? ''
      if (ref !== null) await ledger.commit({ statements: pruneStates(database, ref, clock()), entries: [] })
    },
  }
}
