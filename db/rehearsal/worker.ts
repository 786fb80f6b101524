// The thread of walks over recorded calls: others keep their loop, however long the ledger is
// (docs/rehearsal.md#cost).
import { type DatabaseLocation, readLedger } from '../engine.ts'
import type { StoredRow } from '../ledger/record/leaf.ts'
import { candidateWatch } from '../ledger/rehearsal/candidate.ts'
import { countedSince } from '../ledger/rehearsal/limit-changes.ts'
import type { WalkedPart, WalkScope } from '../ledger/rehearsal/rehearse.ts'
import { rehearser } from '../ledger/rehearsal/rehearse.ts'
import { usageCounter } from '../ledger/rehearsal/usage.ts'
import { UnreadableSegment } from '../ledger/tree/rows.ts'
import type { StoredSegment } from '../ledger/tree/segments.ts'
import type { KeptRows } from '../ledger/verify/kept.ts'
import { lowerThreadPriority } from '../support/give-way.ts'
import { leafCache } from './kept-leaves.ts'
import type { LocatedWalkTask, WalkTask, WalkTasks } from './thread.ts'

// Nothing is kept for PostgreSQL: there a row may appear after the place of a later one.
const cachedLeaves = leafCache()

/** Progress is told as often. ms. */
const PROGRESS_INTERVAL_MS = 250

export const openTasks = (): WalkTasks => ({ walk: walkOver })

async function* walkOver(task: LocatedWalkTask): ReturnType<WalkTasks['walk']> {
  const { location, folder } = task
  const wanted = walkedScope(task)
  // Calls have the processor before work of seconds. Such a thread ends with its task.
  if (wanted.principals === null) lowerThreadPriority()
  const kept = await keptOf(location)
  let archive = kept && folder !== null ? archiveWithin(kept, folder, wanted) : NO_ARCHIVE
  for (;;) {
    try {
      const walk = await walkOf(task, kept, archive)
      let toldAt = performance.now()
      for await (const { leaves, rows, of } of allParts(location, wanted, kept, archive)) {
        for (const leaf of leaves) walk.see(leaf)
        if (performance.now() - toldAt < PROGRESS_INTERVAL_MS) continue
        toldAt = performance.now()
        yield { rows, of }
      }
      return walk.result()
    } catch (error) {
      if (!(error instanceof UnreadableSegment)) throw error
      // Once more, from behind it.
      archive = { ...archive, segments: archive.segments.slice(1 + archive.read), read: 0 }
    }
  }
}

/** After every instant. */
const NO_END = '~'

/** The rows that a task reads: limits count outcomes too, and what came before in their windows. */
function walkedScope(task: WalkTask): WalkScope {
  const limits = task.kind === 'rehearse' ? task.changes.limits : undefined
  if (!limits) return task.wanted
  const since = countedSince(limits, task.wanted.since)
  return { ...task.wanted, principals: null, since, until: NO_END, outcomes: true }
}

/** The segments that a walk begins with. */
interface WalkedArchive {
  readonly segments: readonly StoredSegment[]
  readonly folder: string
  /** The number of them that were read whole. */
  read: number
}

const NO_ARCHIVE: WalkedArchive = { segments: [], folder: '', read: 0 }

/** The archived rows that a preview of a few principals reads: somebody waits for it. */
const MAX_ROWS_OF_FEW = 1_000_000

function archiveWithin(
  { segments }: KeptRows,
  folder: string,
  { since, principals }: WalkScope,
): WalkedArchive {
  const begin = segments.findIndex(({ until }) => until >= since)
  const end = segments.at(-1)?.last ?? 0
  const isNear = ({ first }: StoredSegment): boolean => principals === null || end - first < MAX_ROWS_OF_FEW
  return { folder, segments: begin < 0 ? [] : segments.slice(begin).filter(isNear), read: 0 }
}

async function walkOf(task: WalkTask, kept: KeptRows | null, { segments, folder }: WalkedArchive) {
  if (task.kind === 'usage') return usageCounter(task.principal, task.wanted)
  if (task.kind === 'candidate') return candidateWatch(task.principal, task.since)
  const [segment] = segments
  if (!segment) return rehearser(task.changes, task.wanted, kept?.before?.state, kept?.segments.at(-1)?.until)
  const { archivedMember } = await import('../ledger/read/segment-pool.ts')
  const { readState } = await import('../ledger/verify/recompute.ts')
  const before = kept?.segments.findLast(({ last }) => last < segment.first)
  const text = before && (await archivedMember(folder, segment, 'state-start.json')).toString()
  const state = text === undefined ? undefined : readState(text)?.state
  return rehearser(task.changes, task.wanted, state, before?.until)
}

/** The rows of segments, and then those of the database. */
async function* allParts(
  location: DatabaseLocation,
  wanted: WalkScope,
  kept: KeptRows | null,
  archive: WalkedArchive,
): AsyncGenerator<WalkedPart> {
  const { segments, folder } = archive
  const of = segments.reduce((sum, { first, last }) => sum + last - first + 1, 0)
  let rows = 0
  for (const segment of segments) {
    const { archivedLeaves } = await import('../ledger/read/archived-rows.ts')
    for await (const row of archivedLeaves([segment], folder, NEVER)) {
      rows += 1
      if (isWanted(row, wanted)) yield { leaves: [row.leaf], rows, of }
    }
    archive.read += 1
  }
  yield* partsOf(location, wanted, kept?.after ?? 0)
}

/** True of what may be a change, and of the decisions of those who are wanted. */
const isWanted = ({ status, principal_id: id }: StoredRow, { principals }: WalkScope): boolean =>
  principals === null ||
  !(status === 'allowed' || status === 'denied') ||
  (id !== null && principals.includes(id))

const NEVER = new AbortController().signal

/** The rows that are left; null if nothing is archived, which needs no more than its driver. */
async function keptOf(from: DatabaseLocation): Promise<KeptRows | null> {
  if (from.engine === 'sqlite') {
    const { openReadOnly } = await import('../sqlite/ledger/rows.ts')
    const db = openReadOnly(from.file)
    const any = db.prepare('select 1 from audit_segments limit 1').get()
    db.close()
    if (any === undefined) return null
  }
  const { keptRows } = await import('../ledger/verify/kept.ts')
  const database = await readLedger(from)
  try {
    return await keptRows(database.kysely)
  } finally {
    await database.close()
  }
}

/** The rows, by the engine that holds them. Only its own driver is loaded. */
async function* partsOf(
  from: DatabaseLocation,
  needed: WalkScope,
  start: number,
): AsyncGenerator<WalkedPart> {
  if (from.engine === 'sqlite') {
    const { openReadOnly } = await import('../sqlite/ledger/rows.ts')
    const sqlite = await import('../sqlite/rehearsal/walk.ts')
    const db = openReadOnly(from.file)
    try {
      const kept = `${from.file}#${start}`
      yield* cachedLeaves(kept, needed, (wanted, after) =>
        sqlite.walkSqliteLedger(db, wanted, Math.max(start, after)),
      )
    } finally {
      db.close()
    }
    return
  }
  const { walkingClient } = await import('../postgres/connection.ts')
  const postgres = await import('../postgres/rehearsal/walk.ts')
  const client = walkingClient(from.url)
  await client.connect()
  try {
    yield* postgres.walkPostgresLedger(client, needed, start)
  } finally {
    await client.end()
  }
}
