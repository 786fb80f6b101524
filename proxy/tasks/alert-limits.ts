import type { Database } from '../../db/database.ts'
import { LedgerError } from '../../db/ledger/record/entry.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { alertedStep, isAlertable, noteAlerted, readAlerted, stepOf } from '../../db/limits/alerts.ts'
import { type CallLimit, limitState, meterAt } from '../../db/limits/limit.ts'
import type { PresentRules } from '../../db/limits/present-rules.ts'
import { type MeterUsage, readUsage } from '../../db/limits/usage.ts'
import { noteEntry } from '../../plugins/audit/entries.ts'
import type { PeriodicTask } from './rounds.ts'

interface LimitAlertDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly rules: Pick<PresentRules, 'now'>
  readonly configDigest: () => string
  readonly clock: () => number
}

const TASK = 'alert-limits'
/** The limits of each principal whose meters one round reads. */
const MAX_EACH_READ = 100

/**
 * Writes a row `limit.alert` when a limit of a window reaches 50, 80 or 100 % of its amount: once for each span and
 * step, in the process that leads. Of steps that are reached between two rounds the highest alone has one.
 */
export const alertLimits = (dependencies: LimitAlertDependencies): PeriodicTask => ({
  name: TASK,
  everyMs: 5_000,
  run: async () => {
    const { database, rules, clock } = dependencies
    if (!database.leads(TASK)) return
    const limits = (await rules.now()).limits.filter(isAlertable)
    if (limits.length === 0) return
    const at = clock()
    const read = await readUsage(database, limits, { at, most: 1, mostEach: MAX_EACH_READ })
    const reached = read.flatMap(({ limit, meters }) => {
      const highest = meters?.[0]
      return highest && stepOf(highest) > 0 ? [{ limit, highest }] : []
    })
    if (reached.length === 0) return
    const alerted = await readAlerted(database)
    for (const { limit, highest } of reached) {
      if (stepOf(highest) <= alertedStep(alerted, limit, at)) continue
      await alert(dependencies, limit, { highest, before: alerted.get(limit.id), at })
    }
  },
})

interface ReachedStep {
  readonly highest: MeterUsage
  readonly before: Parameters<typeof noteAlerted>[2]['before']
  readonly at: number
}

async function alert(
  { database, ledger, configDigest }: LimitAlertDependencies,
  limit: CallLimit,
  { highest: { who, ...usage }, before, at }: ReachedStep,
): Promise<void> {
  const { span } = meterAt(limit, at)
  const step = stepOf(usage)
  const detail = { limit: limitState(limit), step, span, ...usage, ...(who !== '' && { principal: who }) }
  try {
    await ledger.commit({
      statements: [noteAlerted(database, limit, { before, now: [span, step] })],
      entries: [noteEntry({ action: 'limit.alert', detail }, at, configDigest())],
      lazy: true,
    })
  } catch (error) {
    // It was changed or removed meanwhile, or another process has led: the next round looks again.
    if (!(error instanceof LedgerError) || error.code !== 'conflict') throw error
  }
}
