import type { Logger } from 'pino'
import { archiveBoundary } from '../../db/ledger/tree/segments.ts'
import { type StoredState, statesUpTo } from '../../db/ledger/tree/states.ts'
import { currentTree } from '../../db/ledger/tree/store.ts'
import { messageOf } from '../../db/support/error-message.ts'
import { type RoundsTask, rounds } from '../tasks/rounds.ts'
import { type ArchiveDependencies, archiveRows } from './archive.ts'
import { type ArchiveOptions, daysOf } from './options.ts'

const NAME = 'archive-rows'
const EVERY_MS = 60_000
const DAY_MS = 86_400_000
/** The time to the next try after one that failed. ms. */
const RETRY_MS = 3_600_000
/** A state a day, for three hundred years. */
const MAX_STATES = 100_000

type ScheduleDependencies = Omit<ArchiveDependencies, 'folder' | 'goesOn'> & {
  /** Null: nothing is archived. */
  readonly options: () => ArchiveOptions | null
  readonly log: Logger
}

/**
 * Moves rows that are old enough into segments, in the process that leads: once a day from a time of day on,
 * a day's state at a time.
 */
export function archiveOnSchedule(given: ScheduleDependencies): RoundsTask {
  const { database, options, clock, log } = given
  let done = ''
  let failedAt = Number.NEGATIVE_INFINITY
  const leads = (): boolean => database.leads(NAME)
  return rounds({
    name: NAME,
    everyMs: EVERY_MS,
    leads,
    atOnce: 1,
    waits: false,
    due: () => {
      const at = clock()
      const now = new Date(at).toISOString()
      const wanted = options()
      const [day, time] = [now.slice(0, 10), now.slice(11, 16)]
      const isDue = wanted !== null && day !== done && time >= wanted.at && at - failedAt >= RETRY_MS
      return isDue ? [{ wanted, day }] : []
    },
    idOf: () => NAME,
    work: async ({ wanted, day }, signal) => {
      try {
        const dependencies = { ...given, folder: wanted.to, goesOn: () => leads() && !signal.aborted }
        while (await archiveNext(dependencies, daysOf(wanted.keep), signal)) signal.throwIfAborted()
        done = day
      } catch (error) {
        failedAt = clock()
        if (!signal.aborted) log.error({ err: error }, `nothing is archived: ${messageOf(error)}`)
      }
    },
  })
}

/** Archives up to the next state whose rows are older than so many days. Returns whether there was one. */
export async function archiveNext(
  dependencies: ArchiveDependencies,
  keepDays: number,
  signal: AbortSignal,
): Promise<boolean> {
  const { database, clock, log } = dependencies
  const tree = await currentTree(database.kysely)
  if (!tree) return false
  const { size: from } = await archiveBoundary(database.kysely)
  const states = (await statesUpTo(database, tree.tree, tree.size, MAX_STATES)).toReversed()
  const end = endOfNext(states, from, keepDays, clock())
  if (end === null) return false
  log.info({ first: from, last: end - 1 }, 'rows of the ledger are archived')
  await archiveRows(dependencies, end - 1, signal)
  return true
}

/**
 * Finds the leaf at which the next segment ends: that of the first state that is old enough, by the clock and
 * by the days on which later states were said. A clock that is set a year ahead is one more day. `states`: by
 * their leaves.
 */
export function endOfNext(
  states: readonly Pick<StoredState, 'leaf' | 'at'>[],
  from: number,
  keepDays: number,
  now: number,
): number | null {
  const at = states.findIndex(({ leaf }) => leaf > from)
  const state = states[at]
  if (!state || Date.parse(state.at) > now - keepDays * DAY_MS) return null
  const days = new Set(states.slice(at + 1).map((later) => later.at.slice(0, 10)))
  days.delete(state.at.slice(0, 10))
  return days.size >= keepDays ? state.leaf : null
}
