import { statfs } from 'node:fs/promises'
import type { Database } from '../../db/database.ts'
import {
  archiveBoundary,
  countSegments,
  type StoredSegment,
  segmentsBefore,
} from '../../db/ledger/tree/segments.ts'
import { statesUpTo } from '../../db/ledger/tree/states.ts'
import { currentTree, treeKeysOf } from '../../db/ledger/tree/store.ts'
import { readSetting } from '../../db/settings.ts'
import { messageOf } from '../../db/support/error-message.ts'
import {
  type ArchiveAlarm,
  type ArchiveStanding,
  archiveOutcome,
  archiveWork,
  type ListedSegment,
} from '../admin/operation/archive-shapes.ts'
import type { ArchiveDesk } from '../admin/operation/context.ts'
import { segmentFilesIn } from './folder.ts'
import { type ArchiveOptions, daysOf } from './options.ts'
import { bytesARow, planArchive } from './plan.ts'
import { DAY_MS, endOfNext, MAX_STATES, parsedSetting } from './schedule.ts'

/** The bytes of a row in the database, with its indexes (docs/operating.md#disk). */
const ROW_BYTES = 900
/** The states by which the rows of a day are counted: a week. */
const WEEK = 7
const HOUR_MS = 3_600_000

interface DeskSources {
  readonly database: Database
  readonly options: ArchiveOptions | null
  /** The room of the database. */
  readonly disk: { readonly free: number }
  readonly wake: () => void
}

/** Makes the archive as operations see it. */
export function archiveDesk(sources: DeskSources): ArchiveDesk {
  const { database, options, wake } = sources
  return {
    options: shownOptions(options),
    alarm: (at) => alarmOf(sources, at),
    standing: (at) => standingOf(sources, at),
    plan: (olderThan, at) => planArchive(database, olderThan, at, options?.segment),
    list: async (before, most) => {
      const found = await segmentsBefore(database.kysely, before, most)
      const there = options && (await filesIn(options.to)).files
      return found.map((segment) => viewOf(segment, options, there))
    },
    mayForget: (until, at) =>
      options?.forget !== undefined && at - Date.parse(until) >= daysOf(options.forget) * DAY_MS,
    wake,
  }
}

const shownOptions = (options: ArchiveOptions | null): ArchiveStanding['options'] => {
  if (!options) return null
  const { keep, to, at, confirm, forget = null } = options
  return { keep, to, at, confirm, forget }
}

interface FolderFiles {
  /** Null: they cannot be listed. */
  readonly files: ReadonlySet<string> | null
  readonly problem: string | null
}

const filesIn = (folder: string): Promise<FolderFiles> =>
  segmentFilesIn(folder).then(
    (found) => ({ files: new Set(found.map(({ file }) => file)), problem: null }),
    (error: unknown) => ({ files: null, problem: messageOf(error) }),
  )

const stateOf = (
  { confirmed_at: confirmed, removed_at: removed, forgotten_at: forgotten }: StoredSegment,
  options: ArchiveOptions | null,
): ListedSegment['state'] => {
  if (forgotten !== null) return 'forgotten'
  if (removed !== null) return 'removed'
  return options?.confirm && confirmed === null ? 'waiting' : 'removing'
}

function viewOf(
  segment: StoredSegment,
  options: ArchiveOptions | null,
  there: ReadonlySet<string> | null,
): ListedSegment {
  const { file, first, last, since, until, bytes, sha256, confirmed_at, removed_at, forgotten_at } = segment
  return {
    ...{ file, first, last, rows: last - first + 1, since, until, bytes, sha256 },
    state: stateOf(segment, options),
    ...{ confirmed_at, removed_at, forgotten_at },
    in_folder: there?.has(file) ?? null,
  }
}

async function alarmOf({ database, options }: DeskSources, at: number): Promise<ArchiveAlarm> {
  const { kysely } = database
  const working = parsedSetting(archiveWork, await readSetting(database, 'archive_asked'))
  const last = parsedSetting(archiveOutcome, await readSetting(database, 'archive_done'))
  const here = options
    ? await kysely.selectFrom('audit_segments').selectAll().where('removed_at', 'is', null).execute()
    : []
  const waiting = here.filter((segment) => stateOf(segment, options) === 'waiting').length
  const { size } = await archiveBoundary(kysely)
  const folder = options && (await folderOf(options.to, size))
  const alarm = { waiting, folder, working, last, overdue: false }
  const tree = options && (await currentTree(kysely))
  if (!tree) return alarm
  const keep = daysOf(options.keep) + 1
  const isOld = here.some(({ until }) => Date.parse(until) < at - keep * DAY_MS)
  const states = (await statesUpTo(database, tree.tree, tree.size, MAX_STATES)).toReversed()
  const end = endOfNext(states, size, keep, at, options.segment)
  return { ...alarm, overdue: isOld || end !== null }
}

async function standingOf(sources: DeskSources, at: number): Promise<ArchiveStanding> {
  const { database, options, disk } = sources
  const { kysely, treeRows } = database
  const tree = await currentTree(kysely)
  const counted = await countSegments(kysely)
  const gone = await kysely
    .selectFrom('audit_segments')
    .select(['last', 'last_place'])
    .where('removed_at', 'is not', null)
    .orderBy('last', 'desc')
    .limit(1)
    .executeTakeFirst()
  const [oldest] = await treeRows.stored(gone?.last_place ?? 0, 1)
  const rowsHere = (tree?.size ?? 0) - (gone ? gone.last + 1 : 0)
  const rate = tree ? await rowsADay(database, tree, at) : 0
  const alarm = await alarmOf(sources, at)
  const isFilling = !options || !oldest || at - Date.parse(oldest.recorded_at) < daysOf(options.keep) * DAY_MS
  const isKnown = database.file !== null && Number.isFinite(disk.free)
  return {
    ...alarm,
    options: shownOptions(options),
    here: { rows: rowsHere, since: oldest?.recorded_at ?? null, bytes: rowsHere * ROW_BYTES },
    archived: counted,
    next: options && (await planArchive(database, options.keep, at, options.segment)),
    forecast: {
      rows_a_day: Math.round(rate),
      year_bytes: Math.round(365 * rate * bytesARow(counted)),
      database_full_in_days: isKnown && isFilling ? daysLeft(disk.free, rate * ROW_BYTES) : null,
      folder_full_in_days: daysLeft(alarm.folder?.free_bytes ?? null, rate * bytesARow(counted)),
    },
    keys: tree ? (await treeKeysOf(kysely, tree.tree)).map(({ vkey }) => vkey) : [],
  }
}

const daysLeft = (free: number | null, aDay: number): number | null =>
  free === null || aDay === 0 ? null : Math.floor(free / aDay)

/** The rows of a day, by those since the states of a week. */
async function rowsADay(
  database: Database,
  {
    tree,
    size,
    begun_at: begun,
  }: { readonly tree: number; readonly size: number; readonly begun_at: string },
  at: number,
): Promise<number> {
  const from = (await statesUpTo(database, tree, size, WEEK)).at(-1) ?? { leaf: 0, at: begun }
  return ((size - from.leaf) * DAY_MS) / Math.max(at - Date.parse(from.at), HOUR_MS)
}

async function folderOf(path: string, archived: number): Promise<ArchiveAlarm['folder']> {
  const { problem } = await filesIn(path)
  const room = await statfs(path).catch(() => null)
  const unknown = problem === null ? (await segmentFilesIn(path)).filter(({ last }) => last >= archived) : []
  return {
    problem,
    free_bytes: room && room.bavail * room.bsize,
    unknown: unknown.map(({ file }) => file).slice(0, MAX_UNKNOWN),
  }
}

const MAX_UNKNOWN = 100
