import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { type RefusalSummaries, summaryEntry } from '../../plugins/audit/summaries.ts'
import type { PeriodicTask } from './every.ts'

/** The rows that are made and written in one turn. */
const AT_ONCE = 128

interface SummaryDependencies {
  readonly ledger: Pick<Ledger, 'commit' | 'failing'>
  readonly summaries: RefusalSummaries
}

/** Writes one row for the refusals of each kind whose minute is over, once the ledger takes rows. */
export const recordSummaries = ({ ledger, summaries }: SummaryDependencies): PeriodicTask => ({
  name: 'record-summaries',
  everyMs: 1_000,
  run: async () => {
    if (!ledger.failing) await writeSummaries({ ledger, summaries })
  },
})

/**
 * Writes the summaries whose minute is over; while stopping, `all`. Rejects, and keeps them, if the ledger
 * takes no rows.
 */
export async function writeSummaries({ ledger, summaries }: SummaryDependencies, all = false): Promise<void> {
  for (;;) {
    const ended = summaries.drainDue(AT_ONCE, all)
    if (ended.length === 0) return
    try {
      await ledger.commit({ entries: ended.map(summaryEntry), lazy: true })
    } catch (error) {
      summaries.requeue(ended)
      throw error
    }
  }
}
