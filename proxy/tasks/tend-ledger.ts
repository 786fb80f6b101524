import type { Database } from '../../db/database.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { touchLastSeen } from '../../db/principals/write.ts'
import { rewriteSetting } from '../../db/settings.ts'
import { CLAIM_SLICES, expiredSlices, forgetClaims } from '../../db/single-uses.ts'
import { portionsOf } from '../../db/support/pages.ts'
import type { AnonymousRefusals } from '../../plugins/audit/anonymous.ts'
import type { OutcomeWriter, SeenPrincipal } from '../../plugins/audit/audit.ts'
import { type RefusalSummaries, summaryEntry } from '../../plugins/audit/summaries.ts'
import type { MonotonicClock } from '../../plugins/secrets/throttle.ts'
import { DEFAULT_TIMERS } from '../http/server.ts'
import type { PeriodicTask, RoundsTask } from './rounds.ts'

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

interface StoppableSealer {
  readonly seal: (goesOn: () => boolean) => Promise<void>
  readonly stop: () => Promise<void>
}

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

/** The longest that a claim is believed: an assertion of a login. A proof is believed for less. ms. */
const BELIEVED_MS = 300_000
/**
 * The least time that a claim is kept after its proof is too old: a copy that came in time may still be under
 * way. ms.
 */
const MIN_CLAIM_RETENTION_MS = BELIEVED_MS + DEFAULT_TIMERS.requestMs + 60_000

/** The principals of one transaction, and the most of one second. */
const [TOUCHED_AT_ONCE, MAX_TOUCHED] = [100, 500]

interface LedgerTaskDependencies {
  readonly database: Database
  readonly ledger: Ledger
  readonly outcomes: OutcomeWriter
  readonly anonymous: AnonymousRefusals
  readonly seen: Map<string, SeenPrincipal>
  readonly configDigest: () => string
  readonly clock: () => number
  readonly monotonic: MonotonicClock
}

/** Makes the tasks that the ledger needs, whether or not requests come. */
export function ledgerTasks(tended: LedgerTaskDependencies): readonly PeriodicTask[] {
  return [
    { name: 'settle-owed-outcomes', everyMs: 1_000, run: () => settleOwed(tended) },
    { name: 'record-anonymous-refusals', everyMs: 60_000, run: () => recordAnonymousRefusals(tended) },
    { name: 'touch-last-seen', everyMs: 1_000, run: () => touchSeen(tended, MAX_TOUCHED) },
    {
      name: 'forget-claims',
      everyMs: 1_000,
      run: claimForgetter(tended, lowestReading(tended, MIN_CLAIM_RETENTION_MS)),
    },
    ...(tended.database.engine === 'postgres' ? [recoverCalls(tended)] : []),
  ]
}

const recoverCalls = ({ database, ledger, clock, configDigest }: LedgerTaskDependencies): PeriodicTask => ({
  name: 'recover-calls',
  everyMs: 10_000,
  run: async () => {
    if (database.leads('recover-calls')) await ledger.recover(clock(), configDigest())
  },
})

// While the ledger fails, `/ready` says so and no traffic may come: a probe has to find out when it works
// again.
async function settleOwed({ ledger, outcomes, database, clock }: LedgerTaskDependencies): Promise<void> {
  if (outcomes.owed > 0) outcomes.retry()
  else if (ledger.failing) {
    const probe = rewriteSetting(database, 'organisation', clock())
    await ledger.commit({ statements: [probe], entries: [] }).catch(() => {
      // Still failing: `ledger.failing` says so, and the next second tries again.
    })
  }
}

/** Writes the rows of anonymous refusals. Also called once more while stopping. */
export async function recordAnonymousRefusals({
  ledger,
  anonymous,
  configDigest,
  clock,
}: Pick<LedgerTaskDependencies, 'ledger' | 'anonymous' | 'configDigest' | 'clock'>): Promise<void> {
  const entries = anonymous.drain(clock(), configDigest())
  if (entries.length === 0) return
  try {
    await ledger.commit({ entries })
  } catch (error) {
    anonymous.restore()
    throw error
  }
}

interface SeenDependencies extends Pick<LedgerTaskDependencies, 'seen' | 'database'> {
  readonly ledger: Pick<Ledger, 'commit'>
}

/** Writes down when principals were last seen: at most `most`, and while stopping all. */
export async function touchSeen(
  { ledger, seen, database }: SeenDependencies,
  most = Number.POSITIVE_INFINITY,
): Promise<void> {
  // In one order at each process: two that lock the same rows must not wait for each other.
  const principals = [...seen].slice(0, most).toSorted(([one], [other]) => (one < other ? -1 : 1))
  for (const some of portionsOf(principals, TOUCHED_AT_ONCE)) {
    const statements = some.map(([id, { type, at }]) => touchLastSeen(database, { type, id, at }))
    await ledger.commit({ statements, entries: [] })
    for (const [id, one] of some) {
      const now = seen.get(id)
      seen.delete(id)
      // Seen again meanwhile: written again, after those that wait.
      if (now && now !== one) seen.set(id, now)
    }
  }
}

/** The slices of all claims that one look is at; each run is the turn of one of them. */
const SLICES_AT_ONCE = 4

/** Forgets proofs that are too old to be believed, some slices of all claims at a time. */
function claimForgetter(
  { ledger, database }: LedgerTaskDependencies,
  lowest: () => number | null,
): () => Promise<void> {
  let turn = 0
  return async () => {
    // Read by every process: one that takes the task over knows the readings of its own time.
    const until = lowest()
    if (until === null || !database.leads('forget-claims')) return
    const slice = turn
    turn = (turn + 1) % CLAIM_SLICES
    if (slice % SLICES_AT_ONCE !== 0) return
    for (const expired of await expiredSlices(database, until, slice, SLICES_AT_ONCE))
      await ledger.commit({ statements: [forgetClaims(database, until, expired)], entries: [] })
  }
}

/**
 * The lowest wall clock reading within the last `spanMs` of time that has really passed; null while less has
 * passed since the start. A clock that is set ahead and back changes nothing (docs/threats.md#e6). Each call
 * is a reading.
 */
function lowestReading(
  { clock, monotonic }: Pick<LedgerTaskDependencies, 'clock' | 'monotonic'>,
  spanMs: number,
) {
  const since = monotonic()
  let readings = [{ at: since, wall: clock() }]
  return (): number | null => {
    const at = monotonic()
    readings = [...readings.filter((reading) => at - reading.at <= spanMs), { at, wall: clock() }]
    return at - since < spanMs ? null : Math.min(...readings.map(({ wall }) => wall))
  }
}
