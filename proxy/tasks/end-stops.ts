import type { Database } from '../../db/database.ts'
import { LedgerError } from '../../db/ledger/record/entry.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import type { PresentRules } from '../../db/limits/present-rules.ts'
import { stopDetail } from '../../db/stops/stop.ts'
import { deleteStop, type StopRecord } from '../../db/stops/store.ts'
import { noteEntry } from '../../plugins/audit/entries.ts'
import type { PeriodicTask } from './rounds.ts'

interface EndStopsDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly rules: Pick<PresentRules, 'now'>
  readonly configDigest: () => string
  readonly clock: () => number
}

const TASK = 'end-stops'

/** Ends the stops whose time is over, each with its row, in the process that leads. Without stops it asks nothing. */
export const endStops = (dependencies: EndStopsDependencies): PeriodicTask => ({
  name: TASK,
  everyMs: 1_000,
  atStart: true,
  run: async () => {
    const { database, rules, clock } = dependencies
    const { stops } = await rules.now()
    const over = stops.filter(({ until }) => until !== null && Date.parse(until) <= clock())
    if (over.length === 0 || !database.leads(TASK)) return
    for (const stop of over) await endStop(dependencies, stop)
  },
})

async function endStop(
  { database, ledger, configDigest, clock }: EndStopsDependencies,
  stop: StopRecord,
): Promise<void> {
  const note = { action: 'stop.ended', detail: { ...stopDetail(stop), why: 'until' } }
  try {
    await ledger.commit({
      statements: deleteStop(database, stop.id),
      entries: [noteEntry(note, clock(), configDigest())],
    })
  } catch (error) {
    // Somebody has ended it at the last moment.
    if (!(error instanceof LedgerError) || error.code !== 'conflict') throw error
  }
}
