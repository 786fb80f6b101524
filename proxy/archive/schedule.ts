import { setTimeout as wait } from 'node:timers/promises'
import type { Logger } from 'pino'
import type { ZodType } from 'zod'
import type { Database } from '../../db/database.ts'
import { archiveBoundary, countSegments } from '../../db/ledger/tree/segments.ts'
import { type StoredState, statesUpTo } from '../../db/ledger/tree/states.ts'
import { currentTree } from '../../db/ledger/tree/store.ts'
import { deleteSetting, readSetting, writeSetting } from '../../db/settings.ts'
import { messageOf } from '../../db/support/error-message.ts'
import type { LedgerStatement } from '../../db/support/statement.ts'
import { type ArchiveOutcome, type ArchiveWork, archiveWork } from '../admin/operation/archive-shapes.ts'
import { type RoundsTask, rounds } from '../tasks/rounds.ts'
import { type ArchiveDependencies, archiveRows, claimArchive, removeArchived } from './archive.ts'
import { type ArchiveOptions, daysOf, SEGMENT_ROWS } from './options.ts'
import { lastToGoOnWith, restoreArchived } from './restore.ts'

/** The lead, and what others are told when somebody has asked for work. */
const NAME = 'archive-rows'
const EVERY_MS = 15_000
export const DAY_MS = 86_400_000
/** The time to the next try after one that failed. ms. */
const RETRY_MS = 3_600_000
/** A state a day, for three hundred years. */
export const MAX_STATES = 100_000
/** Looks for the lead by a process that was just asked, which may be the only one. */
const [LOOKS, LOOK_MS] = [40, 250]

type ScheduleDependencies = Omit<ArchiveDependencies, 'folder' | 'goesOn' | 'confirm' | 'database'> & {
  readonly database: Database
  /** Null: nothing is archived. */
  readonly options: () => ArchiveOptions | null
  readonly log: Logger
}

export interface ArchiveTask extends RoundsTask {
  /** Has the process that leads look for work at once. */
  readonly wake: () => void
}

/** Work on the archive. `text`: as an operator has asked for it. */
interface DueWork extends Pick<ArchiveWork, 'what' | 'file' | 'keep'> {
  readonly text: string | null
  readonly id: string | null
  /** The day that is done then. Null: rows of segments are removed, and nothing else. */
  readonly day: string | null
}

/**
 * Moves rows that are old enough into segments, in the process that leads: once a day from a time of day on,
 * a day's state at a time; and does what operators have asked for.
 */
export function archiveOnSchedule(given: ScheduleDependencies): ArchiveTask {
  const { database, ledger, options, clock, log } = given
  let done = ''
  let failedAt = Number.NEGATIVE_INFINITY
  const leads = (): boolean => database.leads(NAME)
  const task = rounds<DueWork>({
    name: NAME,
    everyMs: EVERY_MS,
    leads,
    atOnce: 1,
    waits: false,
    due: async function* () {
      const text = (await readSetting(database, 'archive_asked')) ?? null
      const asked = parsedSetting(archiveWork, text)
      if (text !== null) return yield { ...(asked ?? UNREADABLE), text, day: null }
      const at = clock()
      const now = new Date(at).toISOString()
      const wanted = options()
      if (wanted === null || at - failedAt < RETRY_MS) return
      const [day, time] = [now.slice(0, 10), now.slice(11, 16)]
      const scheduled = { what: 'schedule', file: null, keep: wanted.keep, text: null, id: null } as const
      if (day !== done && time >= wanted.at) yield { ...scheduled, day }
      else if (await hasRowsToRemove(database, wanted)) yield { ...scheduled, day: null }
    },
    idOf: () => NAME,
    work: async (due, signal) => {
      const { kysely } = database
      const { text, id, what, file, day } = due
      const before = await countSegments(kysely).catch(() => null)
      let problem: string | null = null
      try {
        const wanted = options()
        if (!wanted) throw new Error('there is no 90-archive.yaml any more')
        const goesOn = () => leads() && !signal.aborted
        const dependencies = { ...given, folder: wanted.to, confirm: wanted.confirm, goesOn }
        await perform(dependencies, due, wanted.segment, signal)
        done = day ?? done
        failedAt = Number.NEGATIVE_INFINITY
      } catch (error) {
        // Whoever leads then goes on with it.
        if (signal.aborted) return
        problem = messageOf(error)
        log.error({ err: error }, `nothing is archived: ${problem}`)
        if (text === null) failedAt = clock()
      }
      if (text === null && day === null && problem === null) return
      try {
        const after = await countSegments(kysely)
        const moved = {
          segments: after.segments - (before?.segments ?? after.segments),
          rows: after.rows - (before?.rows ?? after.rows),
        }
        const at = new Date(clock()).toISOString()
        const outcome: ArchiveOutcome = { what, file, id, at, ...moved, problem }
        const statements = [
          writeSetting(database, 'archive_done', JSON.stringify(outcome), clock()),
          ...(text === null ? [] : [deleteSetting(database, 'archive_asked', text)]),
        ]
        await ledger.commit({ statements: statements.map(asUpkeep), entries: [] })
      } catch (error) {
        log.error({ err: error }, 'the end of the work on the archive was not stored')
      }
    },
  })
  const look = async (): Promise<void> => {
    for (let looks = 0; looks < LOOKS; looks += 1) {
      await task.run()
      if (leads()) return
      await wait(LOOK_MS, undefined, { ref: false })
    }
  }
  const lookAtOnce = (): void => {
    look().catch((error: unknown) => log.error({ err: error }, 'the work on the archive was not begun'))
  }
  database.notices.on(NAME, lookAtOnce)
  return {
    ...task,
    wake: () => {
      database.notices.notify(NAME, '')
      lookAtOnce()
    },
  }
}

const asUpkeep = (statement: LedgerStatement): LedgerStatement => ({ ...statement, beside: 'upkeep' })

/** Reads a setting of the archive. Null: there is none, or somebody else has written it. */
export function parsedSetting<T>(schema: ZodType<T>, text: string | null | undefined): T | null {
  try {
    return schema.parse(JSON.parse(text ?? 'null'))
  } catch {
    return null
  }
}

/** Stands for text that somebody else has written to the table: it is refused as the file of that name is. */
const UNREADABLE = { what: 'restore', file: '', keep: null, id: null } as const

const hasRowsToRemove = async (
  { kysely }: Pick<Database, 'kysely'>,
  { confirm }: ArchiveOptions,
): Promise<boolean> => {
  const next = await kysely
    .selectFrom('audit_segments')
    .select('confirmed_at')
    .where('removed_at', 'is', null)
    .orderBy('first')
    .limit(1)
    .executeTakeFirst()
  return next !== undefined && (!confirm || next.confirmed_at !== null)
}

async function perform(
  dependencies: ArchiveDependencies,
  { what, file, keep, text, day }: DueWork,
  segment: SegmentSize,
  signal: AbortSignal,
): Promise<void> {
  if (what === 'restore') return restoreArchived(dependencies, file ?? '', signal)
  if (text === null && day === null) return removeArchived(dependencies)
  while (await archiveNext(dependencies, daysOf(keep ?? ''), signal, segment)) signal.throwIfAborted()
}

/** Archives up to the next state whose rows are older than so many days. Returns whether there was one. */
export async function archiveNext(
  dependencies: ArchiveDependencies,
  keepDays: number,
  signal: AbortSignal,
  segment?: SegmentSize,
): Promise<boolean> {
  const { database, clock, log } = dependencies
  const tree = await currentTree(database.kysely)
  if (!tree) return false
  const { size: from } = await archiveBoundary(database.kysely)
  const states = (await statesUpTo(database, tree.tree, tree.size, MAX_STATES)).toReversed()
  const end = endOfNext(states, from, keepDays, clock(), segment)
  if (end === null) return false
  await claimArchive(dependencies)
  const last = (await lastToGoOnWith(dependencies, end)) ?? end - 1
  log.info({ first: from, last }, 'rows of the ledger are archived')
  await archiveRows(dependencies, last, signal)
  return true
}

export type SegmentSize = ArchiveOptions['segment']

const A_DAY: SegmentSize = { days: 1, rows: SEGMENT_ROWS }

/**
 * Finds the leaf at which the next segment ends: that of the first state that makes it long enough, once that is old
 * enough by the clock, and by the days on which later states were said. A clock that is set a year ahead is one more
 * day. `states`: by their leaves.
 */
export function endOfNext(
  states: readonly Pick<StoredState, 'leaf' | 'at'>[],
  from: number,
  keepDays: number,
  now: number,
  { days: most, rows }: SegmentSize = A_DAY,
): number | null {
  const ahead = states.filter(({ leaf }) => leaf > from)
  const within = new Set<string>()
  const at = ahead.findIndex(
    (state, n) => within.add(dayOf(state)).size >= most || (ahead[n + 1]?.leaf ?? from) - from > rows,
  )
  const state = ahead[at]
  if (!state || Date.parse(state.at) > now - keepDays * DAY_MS) return null
  const days = new Set(ahead.slice(at + 1).map(dayOf))
  days.delete(dayOf(state))
  return days.size >= keepDays ? state.leaf : null
}

const dayOf = ({ at }: Pick<StoredState, 'at'>): string => at.slice(0, 10)
