// Measures the ledger by itself: so many callers that each commit one row and wait for it; then what the record
// of a call costs. Usage: node ledger.ts DIR SECONDS
import { join } from 'node:path'
import { createHistogram } from 'node:perf_hooks'
import type { Entry } from '../../../db/audit/entry.ts'
import { type Ledger, openLedger } from '../../../db/audit/ledger.ts'
import { openDatabase } from '../../../db/database.ts'
import { type CallCost, callCost } from './call-cost.ts'

/** The answer, one line of JSON on standard output. */
export interface LedgerAlone {
  readonly points: readonly LedgerPoint[]
  readonly call: CallCost
}

/** Times are µs. */
export interface LedgerPoint {
  readonly committers: number
  readonly rowsPerSecond: number
  readonly p50: number
  readonly p99: number
  /** Processor time per row, caller and writer together. µs. */
  readonly cpuUs: number
}

const COMMITTERS = [1, 16, 64, 256]
const WARM_UP = 0.2

// Counts the rows, for their request ids.
let serial = 0

const [, , directory = '', seconds = '2'] = process.argv
const database = await openDatabase(`sqlite:${join(directory, 'ledger.db')}`)
const ledger = await openLedger({ file: database.file, version: 'bench' })
const points: LedgerPoint[] = []
for (const committers of COMMITTERS) points.push(await measure(ledger, committers, Number(seconds)))
const call = await callCost(ledger, database.file)
await ledger.close()
await database.close()
process.stdout.write(`${JSON.stringify({ points, call } satisfies LedgerAlone)}\n`)

async function measure(on: Ledger, committers: number, lengthS: number): Promise<LedgerPoint> {
  const times = createHistogram({ lowest: 1, highest: 60_000_000, figures: 3 })
  await commitFor(on, committers, lengthS * WARM_UP, () => {})
  const startedAt = performance.now()
  const before = process.cpuUsage()
  await commitFor(on, committers, lengthS, (us) => times.record(Math.max(1, Math.round(us))))
  const tookS = (performance.now() - startedAt) / 1_000
  const { user, system } = process.cpuUsage(before)
  return {
    committers,
    rowsPerSecond: times.count / tookS,
    p50: times.percentile(50),
    p99: times.percentile(99),
    cpuUs: (user + system) / times.count,
  }
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

/** A decision row as an LLM call makes it. */
function entry(): Entry {
  serial += 1
  return {
    at: Date.now(),
    request_id: `req_${serial.toString(16).padStart(32, '0')}`,
    principal_id: 'acme::bench',
    principal_type: 'agent',
    action: 'egress_llm_chat',
    status: 'allowed',
    tool: null,
    model: 'json-1',
    provider: null,
    cert_thumbprint: 'ab'.repeat(32),
    dpop_jkt: null,
    detail: {
      method: 'POST',
      path: '/v1/chat/completions',
      body_sha256: 'cd'.repeat(32),
      body_bytes: 489,
      stream: false,
    },
    config_digest: 'ef'.repeat(32),
  }
}
