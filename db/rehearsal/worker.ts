// The thread of walks over recorded calls: others keep their loop, however long the ledger is
// (docs/rehearsal.md#cost).
import { type DatabaseLocation, readLedger } from '../engine.ts'
import { candidateWatch } from '../ledger/rehearsal/candidate.ts'
import type { WalkedPart, WalkScope } from '../ledger/rehearsal/rehearse.ts'
import { rehearser } from '../ledger/rehearsal/rehearse.ts'
import { usageCounter } from '../ledger/rehearsal/usage.ts'
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
  const { location, wanted } = task
  // Calls have the processor before work of seconds. Such a thread ends with its task.
  if (wanted.principals === null) lowerThreadPriority()
  const kept = await keptOf(location)
  const walk = walkOf(task, kept)
  let toldAt = performance.now()
  for await (const { leaves, rows, of } of partsOf(location, wanted, kept?.after ?? 0)) {
    for (const leaf of leaves) walk.see(leaf)
    if (performance.now() - toldAt < PROGRESS_INTERVAL_MS) continue
    toldAt = performance.now()
    yield { rows, of }
  }
  return walk.result()
}

function walkOf(task: WalkTask, kept: KeptRows | null) {
  if (task.kind === 'usage') return usageCounter(task.principal, task.wanted)
  if (task.kind === 'candidate') return candidateWatch(task.principal, task.since)
  return rehearser(task.changes, task.wanted, kept?.before?.state, kept?.segments.at(-1)?.until)
}

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
