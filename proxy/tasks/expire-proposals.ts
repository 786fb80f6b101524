import type { Database } from '../../db/database.ts'
import { LedgerError } from '../../db/ledger/record/entry.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { decideProposal, overdueProposals, type Proposal } from '../../db/operators/proposals.ts'
import { noteEntry } from '../../plugins/audit/entries.ts'
import type { PeriodicTask } from './rounds.ts'

const AT_ONCE = 100

interface ProposalExpiryDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly configDigest: () => string
  readonly clock: () => number
  /** The detail of a row about a proposal. */
  readonly detailOf: (proposal: Proposal) => Parameters<typeof noteEntry>[0]['detail']
}

/** Ends the proposals that nobody has confirmed in time, each with one row. */
export const expireProposals = ({
  database,
  ledger,
  configDigest,
  clock,
  detailOf,
}: ProposalExpiryDependencies): PeriodicTask => ({
  name: 'expire-proposals',
  everyMs: 60_000,
  atStart: true,
  run: async () => {
    if (!database.leads('expire-proposals')) return
    const at = clock()
    for (const proposal of await overdueProposals(database, at, AT_ONCE)) {
      const note = { action: 'proposal.expired', detail: detailOf(proposal) }
      const { proposal_id: id } = proposal
      try {
        await ledger.commit({
          statements: [decideProposal(database, { id, status: 'expired', by: null, at })],
          entries: [noteEntry(note, at, configDigest())],
        })
      } catch (error) {
        // Somebody has decided it at the last moment.
        if (!(error instanceof LedgerError) || error.code !== 'conflict') throw error
      }
    }
  },
})
