// The thread of walks over recorded calls: others keep their loop, however long the ledger is
// (docs/rehearsal.md#cost).
import { parentPort } from 'node:worker_threads'
import type { DatabaseLocation } from '../engine.ts'
import { rehearser } from '../ledger/rehearsal/rehearse.ts'
import type { WalkedPart, WalkScope } from '../ledger/rehearsal/task.ts'
import { usageCounter } from '../ledger/rehearsal/usage.ts'
import { lowerThreadPriority } from '../support/give-way.ts'
import { leafCache } from './kept-leaves.ts'
import type { LocatedWalkTask, WalkMessage, WalkTask } from './messages.ts'

const port = parentPort
if (!port) throw new Error('db/rehearsal/worker.ts runs as a worker thread only')

// Nothing is kept for PostgreSQL: there a row may appear after the place of a later one.
const cachedLeaves = leafCache()

/** Progress is told as often. ms. */
const PROGRESS_INTERVAL_MS = 250

const postWalkMessage = (message: WalkMessage): void => port.postMessage(message)

// One task at a time: db/rehearsal/thread.ts, which alone starts this thread, waits for the end of it. A
// failing task ends the thread.
port.on('message', (data: LocatedWalkTask) => void walkOver(data))

async function walkOver(data: LocatedWalkTask): Promise<void> {
  const { location, wanted } = data
  // Calls have the processor before work of seconds. Such a thread ends with its task.
  if (wanted.principals === null) lowerThreadPriority()
  const walk = walkOf(data)
  let toldAt = performance.now()
  for await (const { leaves, rows, of } of partsOf(location, wanted)) {
    for (const leaf of leaves) walk.see(leaf)
    if (performance.now() - toldAt < PROGRESS_INTERVAL_MS) continue
    toldAt = performance.now()
    postWalkMessage({ kind: 'progress', rows, of })
  }
  postWalkMessage({ kind: 'done', result: walk.result() })
}

function walkOf(task: WalkTask) {
  if (task.kind === 'usage') return usageCounter(task.principal, task.wanted)
  return rehearser(task.changes, task.wanted)
}

/** The rows, by the engine that holds them. Only its own driver is loaded. */
async function* partsOf(from: DatabaseLocation, needed: WalkScope): AsyncGenerator<WalkedPart> {
  if (from.engine === 'sqlite') {
    const { openReadOnly } = await import('../sqlite/ledger/rows.ts')
    const sqlite = await import('../sqlite/rehearsal/walk.ts')
    const db = openReadOnly(from.file)
    yield* cachedLeaves(from.file, needed, (wanted, after) => sqlite.walkSqliteLedger(db, wanted, after))
    db.close()
    return
  }
  const { walkingClient } = await import('../postgres/connection.ts')
  const postgres = await import('../postgres/rehearsal/walk.ts')
  const client = walkingClient(from.url)
  await client.connect()
  yield* postgres.walkPostgresLedger(client, needed)
  await client.end()
}
