// The thread of walks over recorded calls: others keep their loop, however long the ledger is (docs/rehearsal.md#cost).
import { parentPort } from 'node:worker_threads'
import type { DatabaseLocation } from '../engine.ts'
import { candidateWatch } from '../ledger/rehearsal/candidate.ts'
import { rehearser } from '../ledger/rehearsal/rehearse.ts'
import type { WalkedPart, Wanted } from '../ledger/rehearsal/task.ts'
import { usage } from '../ledger/rehearsal/usage.ts'
import { giveWay } from '../support/give-way.ts'
import { keptLeaves } from './kept-leaves.ts'
import type { FromWalk, WalkData, WalkTask } from './messages.ts'

const port = parentPort
if (!port) throw new Error('db/rehearsal/worker.ts runs as a worker thread only')

// Of PostgreSQL nothing is kept: there a row may appear behind the place of a later one.
const kept = keptLeaves()

/** Progress is told as often. ms. */
const TELL_MS = 250

const tell = (message: FromWalk): void => port.postMessage(message)

// One task at a time: db/rehearsal/thread.ts, which alone starts this thread, waits for the end of it. What a task fails
// with ends the thread.
port.on('message', (data: WalkData) => void walkOver(data))

async function walkOver(data: WalkData): Promise<void> {
  const { location, wanted } = data
  // Calls have the processor before what takes seconds. Such a thread ends with its task.
  if (wanted.principals === null) giveWay()
  const walk = walkOf(data)
  let toldAt = performance.now()
  for await (const { leaves, rows, of } of partsOf(location, wanted)) {
    for (const leaf of leaves) walk.see(leaf)
    if (performance.now() - toldAt < TELL_MS) continue
    toldAt = performance.now()
    tell({ kind: 'progress', rows, of })
  }
  tell({ kind: 'done', result: walk.result() })
}

function walkOf(task: WalkTask) {
  if (task.kind === 'usage') return usage(task.principal, task.wanted)
  if (task.kind === 'candidate') return candidateWatch(task.principal, task.since)
  return rehearser(task.changes, task.wanted)
}

/** The rows, by the engine that holds them. Only its own driver is loaded. */
async function* partsOf(from: DatabaseLocation, needed: Wanted): AsyncGenerator<WalkedPart> {
  if (from.engine === 'sqlite') {
    const { openReadOnly } = await import('../sqlite/ledger/rows.ts')
    const sqlite = await import('../sqlite/rehearsal/walk.ts')
    const db = openReadOnly(from.file)
    yield* kept(from.file, needed, (wanted, after) => sqlite.walk(db, wanted, after))
    db.close()
    return
  }
  const { walkingClient } = await import('../postgres/connection.ts')
  const postgres = await import('../postgres/rehearsal/walk.ts')
  const client = walkingClient(from.url)
  await client.connect()
  yield* postgres.walk(client, needed)
  await client.end()
}
