import type { Database } from '../../db/database.ts'
import type { RoundsTask } from './rounds.ts'

interface StoppableSealer {
  readonly seal: (goesOn: () => boolean) => Promise<void>
  readonly stop: () => Promise<void>
}

/** The name by which one process leads it. */
export const SEAL_TASK = 'seal-ledger'

export const sealLedger = (
  sealer: StoppableSealer,
  { leads }: Pick<Database, 'leads'>,
  everyMs: number,
): RoundsTask => ({
  name: SEAL_TASK,
  everyMs,
  run: async () => {
    if (leads(SEAL_TASK)) await sealer.seal(() => leads(SEAL_TASK))
  },
  stop: () => sealer.stop(),
})
