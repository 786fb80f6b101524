import { once } from 'node:events'
import { rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { openReadOnly } from '../../db/sqlite/ledger/rows.ts'
import { nameOf } from './chosen.ts'
import type { Child } from './ground/children.ts'
import type { HeapCount } from './ground/count-heap.ts'
import { gatewayStart } from './ground/gateway.ts'
import type { Ground } from './ground/ground.ts'
import { watchLog } from './ground/watch-log.ts'
import { measuring } from './measuring.ts'
import type { Point } from './points.ts'
import type { Bench } from './workbench.ts'

/** What a call costs beside time, in a process of its own that is asked nothing else. Bytes. */
export interface Cost {
  readonly server: string
  readonly point: string
  readonly connections: number
  readonly calls: number
  /** Allocated on the event loop's heap. */
  readonly loopBytes: number
  /** Allocated on the heaps of the other threads, the ledger's among them. */
  readonly threadsBytes: number
  /** The time that the collector stopped the event loop. µs. */
  readonly pausesUs: number
  /** Rows of the ledger. */
  readonly rows: number
  /** What the database has grown by when the gateway has ended, indexes included. */
  readonly fileBytes: number
  /** Written to the write-ahead log. */
  readonly logBytes: number
}

const PRELOAD = join(import.meta.dirname, 'ground/count-heap.ts')
/** The calls that are counted, and the time that they may take. s. */
const CALLS = 10_000
const LONGEST_S = 40
const ANSWER_MS = 5_000

/** A gateway whose costs are counted: `server` is its name in the tables. */
export interface Counted {
  readonly server: string
  readonly ground: Ground
}

/**
 * Counts what the calls of a point take, in a process of its own: no other figure pays for the counting.
 * Everything is per call.
 */
export async function measureCost(
  bench: Bench,
  { server, ground }: Counted,
  point: Point,
  prime: Point,
): Promise<Cost> {
  const start = await gatewayStart(ground, `cost-${server}`)
  const dataDir = start.env?.MCP_PROXY_DATA_DIR ?? ''
  const file = join(dataDir, 'sallyport.db')
  const stored = await sizeAndRows(file)
  const counting = { ...start, args: ['--import', PRELOAD, ...start.args] }
  const child = await bench.children.start({ ...counting, core: bench.cores.measured })
  const measure = measuring(bench, { child, ground, tls: true, prime })
  // Opened as soon as there is a log, begun when all but the calls to count have been made.
  const log = watchLog(file)
  const manner = { warmupS: 0, seconds: LONGEST_S, enough: CALLS }
  const before = async () => {
    log.hold()
    await heapOf(child)
  }
  const { requests: calls } = await measure(point, { ...manner, before })
  const heap = await heapOf(child)
  const { logBytes, rows } = log.take()
  await child.stop()
  const after = await sizeAndRows(file)
  await rm(dataDir, { recursive: true })
  // The rows before those that were counted take the same room.
  const bytesPerRow = (after.size - stored.size) / (after.rows - stored.rows)
  const cost = {
    ...{ server, point: point.name, connections: point.connections, calls },
    loopBytes: heap.loopBytes / calls,
    threadsBytes: heap.threadsBytes / calls,
    pausesUs: heap.pausesUs / calls,
    rows: rows / calls,
    fileBytes: (bytesPerRow * rows) / calls,
    logBytes: logBytes / calls,
  }
  bench.say(`${nameOf(`cost/${server}`, point)}: ${Math.round(cost.loopBytes)} bytes of heap`)
  return cost
}

async function heapOf({ process: child }: Child): Promise<HeapCount> {
  const answered = once(child, 'message', { signal: AbortSignal.timeout(ANSWER_MS) })
  child.send('take')
  // Only ground/count-heap.ts speaks on this channel.
  const [count] = (await answered) as [HeapCount]
  return count
}

async function sizeAndRows(file: string): Promise<{ size: number; rows: number }> {
  const { size } = await stat(file)
  const db = openReadOnly(file)
  const rows = db.prepare<[], number>('select coalesce(max(seq), 0) from audit_log').pluck().get() ?? 0
  db.close()
  return { size, rows }
}
