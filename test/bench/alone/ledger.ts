// Measures the ledger by itself: so many callers that each commit one row and wait for it; then what the record
// of a call costs. Usage: node ledger.ts DIR SECONDS
import { statSync } from 'node:fs'
import { join } from 'node:path'
import { createHistogram } from 'node:perf_hooks'
import { openDatabase } from '../../../db/engine.ts'
import { type Ledger, openLedger } from '../../../db/ledger/record/ledger.ts'
import { busiestThread } from '../ground/proc.ts'
import { watchLog } from '../ground/watch-log.ts'
import { type CallCost, recordCalls } from './call-cost.ts'
import { entry } from './entry.ts'

/** The answer, one line of JSON on standard output. */
export interface LedgerAlone {
  readonly points: readonly LedgerPoint[]
  readonly call: CallCost & RecordRoom
}

/** The room that a row takes. Bytes. */
export interface RecordRoom {
  /** In the database, indexes included. */
  readonly storedPerRow: number
  /** In the write-ahead log. */
  readonly loggedPerRow: number
}

/** Times are µs. */
export interface LedgerPoint {
  readonly committers: number
  readonly rowsPerSecond: number
  readonly p50: number
  readonly p99: number
  /** Processor time per row, caller and writer together. µs. */
  readonly cpuUs: number
  /** Processor time per row of the ledger's thread alone. µs. Null: no /proc. */
  readonly writerUs: number | null
}

const COMMITTERS = [1, 16, 64, 256]
const WARM_UP = 0.2

const [, , directory = '', seconds = '2'] = process.argv
const database = await openDatabase(`sqlite:${join(directory, 'ledger.db')}`)
const ledger = await openLedger({ database, version: 'bench' })
const points: LedgerPoint[] = []
for (const committers of COMMITTERS) points.push(await measure(ledger, committers, Number(seconds)))
await ledger.close()
await database.close()
const call = await measureCalls(join(directory, 'calls.db'))
process.stdout.write(`${JSON.stringify({ points, call } satisfies LedgerAlone)}\n`)

/** Measures the room of calls in a ledger of their own. */
async function measureCalls(file: string): Promise<LedgerAlone['call']> {
  const own = await openDatabase(`sqlite:${file}`)
  const calls = await openLedger({ database: own, version: 'bench' })
  // The first row makes the log.
  await calls.commit({ entries: [entry()] })
  const log = watchLog(file)
  const before = statSync(file).size
  log.hold()
  const cost = await recordCalls(calls)
  await calls.close()
  const { logBytes, rows } = log.take()
  // Its last connection moves the log into the database.
  await own.close()
  const stored = statSync(file).size - before
  return { ...cost, storedPerRow: stored / rows, loggedPerRow: logBytes / rows }
}

async function measure(on: Ledger, committers: number, lengthS: number): Promise<LedgerPoint> {
  const times = createHistogram({ lowest: 1, highest: 60_000_000, figures: 3 })
  await commitFor(on, committers, lengthS * WARM_UP, () => {})
  const startedAt = performance.now()
  const before = process.cpuUsage()
  const writerUs = busiestThread()
  await commitFor(on, committers, lengthS, (us) => times.record(Math.max(1, Math.round(us))))
  const tookS = (performance.now() - startedAt) / 1_000
  const { user, system } = process.cpuUsage(before)
  return {
    committers,
    rowsPerSecond: times.count / tookS,
    p50: times.percentile(50),
    p99: times.percentile(99),
    cpuUs: (user + system) / times.count,
    writerUs: perRow(writerUs(), times.count),
  }
}

function perRow(us: number | null, rows: number): number | null {
  return us === null ? null : us / rows
}

async function commitFor(
  on: Ledger,
  committers: number,
  lengthS: number,
  note: (us: number) => void,
): Promise<void> {
  const until = performance.now() + lengthS * 1_000
  const commit = async (): Promise<void> => {
    for (let at = performance.now(); at < until; at = performance.now()) {
      await on.commit({ entries: [entry()] })
      note((performance.now() - at) * 1_000)
    }
  }
  await Promise.all(Array.from({ length: committers }, commit))
}
