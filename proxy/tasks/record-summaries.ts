import type { Ledger } from '../../db/audit/ledger.ts'
import { type RefusalSummaries, summaryEntry } from '../../plugins/audit/summaries.ts'
import type { Task } from './every.ts'

/** The rows that are made and written in one turn. */
const AT_ONCE = 256

interface Sources {
  readonly ledger: Pick<Ledger, 'commit' | 'failing'>
  readonly summaries: RefusalSummaries
}

/** Writes one row for the refusals of each kind whose minute is over. Tries again while the ledger fails. */
export const recordSummaries = ({ ledger, summaries }: Sources): Task => ({
  name: 'record-summaries',
  everyMs: 1_000,
  run: async () => {
    summaries.close()
    if (!ledger.failing) await writeSummaries({ ledger, summaries })
  },
})

/** Writes the summaries that have ended. Rejects where the ledger takes no rows: then they are kept. */
export async function writeSummaries({ ledger, summaries }: Sources): Promise<void> {
  for (let ended = summaries.take(AT_ONCE); ended.length > 0; ended = summaries.take(AT_ONCE)) {
    try {
      await ledger.commit({ entries: ended.map(summaryEntry), lazy: true })
    } catch (error) {
      summaries.giveBack(ended)
      throw error
    }
  }
}
