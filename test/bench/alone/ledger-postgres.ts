// Measures the ledger on PostgreSQL by itself, as one process of many: so many callers that each commit and wait for it.
// Warms up until the instant AT (ms since the epoch). Usage: node ledger-postgres.ts URL AT SECONDS COMMITTERS KIND
import { randomBytes } from 'node:crypto'
import { createHistogram } from 'node:perf_hooks'
import type { Database } from '../../../db/database.ts'
import { openDatabase } from '../../../db/engine.ts'
import type { LedgerUnit } from '../../../db/ledger/record/entry.ts'
import { type Ledger, openLedger } from '../../../db/ledger/record/ledger.ts'
import { authorityUnchanged } from '../../../db/principals/pins.ts'
import { insertPrincipal } from '../../../db/principals/write.ts'
import { claimOnce } from '../../../db/single-uses.ts'
import { entry } from './entry.ts'

/** `row`: a row and nothing else. `decision`: one that asserts a principal's revision and claims a proof, as a call does. */
export type PostgresKind = 'row' | 'decision'

/** The answer, one line of JSON on standard output. */
export interface PostgresPart {
  /** Commits per second of this process. */
  readonly perSecond: number
  /** µs. */
  readonly p50: number
  readonly p99: number
}

const PRINCIPALS = 100
const EXPIRES_MS = 120_000

const [, , url = '', at = '0', seconds = '2', committers = '1', kind = 'row'] = process.argv
const database = await openDatabase(url)
const ledger = await openLedger({ database, version: 'bench' })
const unit = kind === 'decision' ? await decisions(database, ledger) : () => ({ entries: [entry()] })
await commitFor(Math.max(0, Number(at) - Date.now()), () => {})
const times = createHistogram({ lowest: 1, highest: 60_000_000, figures: 3 })
const startedAt = performance.now()
await commitFor(Number(seconds) * 1_000, (us) => times.record(Math.max(1, Math.round(us))))
const tookS = (performance.now() - startedAt) / 1_000
await ledger.close()
await database.close()
const part = { perSecond: times.count / tookS, p50: times.percentile(50), p99: times.percentile(99) }
process.stdout.write(`${JSON.stringify(part satisfies PostgresPart)}\n`)

async function commitFor(lengthMs: number, note: (us: number) => void): Promise<void> {
  const until = performance.now() + lengthMs
  const commit = async (): Promise<void> => {
    while (performance.now() < until) {
      const since = performance.now()
      await ledger.commit(unit())
      note((performance.now() - since) * 1_000)
    }
  }
  await Promise.all(Array.from({ length: Number(committers) }, commit))
}

/** Makes principals of this process, and returns what makes the decisions of their calls, in turn. */
async function decisions(db: Database, on: Ledger): Promise<() => LedgerUnit> {
  const now = Date.now()
  const run = randomBytes(6).toString('hex')
  const ids = Array.from({ length: PRINCIPALS }, (_, n) => `acme::bench-${run}-${n}`)
  for (const id of ids)
    await on.commit({
      statements: [
        insertPrincipal(db, {
          ...{ type: 'agent', id, ref: id, name: id.slice(6), displayName: null, capabilities: [] },
          ...{ enrollmentMethod: 'minted', spiffeId: null, dpopJkt: null, federated: false, at: now },
        }),
      ],
      entries: [],
    })
  const unchanged = authorityUnchanged(db)
  let call = 0
  return () => {
    call += 1
    const id = ids[call % PRINCIPALS] ?? ''
    return {
      assertions: [unchanged('agent', id, 1)],
      statements: [claimOnce(db, randomBytes(32).toString('hex'), Date.now() + EXPIRES_MS)],
      entries: [{ ...entry(), principal_id: id }],
    }
  }
}
