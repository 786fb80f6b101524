// Measures what the record of a call takes of a PostgreSQL server: twelve calls in a commit, a decision and an outcome
// each. The server's CPU is read from /proc, if it runs on this machine. Usage: node room-postgres.ts URL
import { readFileSync } from 'node:fs'
import { Client } from 'pg'
import { openDatabase } from '../../../db/engine.ts'
import { openLedger } from '../../../db/ledger/record/ledger.ts'
import { STREAM_CLASS, streamKey } from '../../../db/postgres/ledger/locks.ts'
import { decisionOf, outcomeOf } from './call.ts'
import { JUDGING } from './call-cost.ts'

/** Measures what a call takes of the server. The answer, one line of JSON on standard output. */
export interface PostgresRoom {
  /** Processor time of the session that writes. µs. Null: the server is elsewhere. */
  readonly serverUs: number | null
  /** Bytes in the write-ahead log. */
  readonly logged: number
  /** Bytes of the table and its indexes. */
  readonly stored: number
}

const CALLS_PER_COMMIT = 12
const WARM_UP = 150
const COMMITS = 800

const [, , url = ''] = process.argv
const database = await openDatabase(url)
const ledger = await openLedger({ database, version: 'bench' })
const client = new Client(url)
await client.connect()
let calls = 0
const [first] = await commit()
await commits(WARM_UP)
await client.query('vacuum analyze audit_rows')
await client.query('checkpoint')
const pid = await writer(first?.stream ?? '')
const before = await used()
const usBefore = cpuUs(pid)
await commits(COMMITS)
const usAfter = cpuUs(pid)
const after = await used()
const perCall = (total: number): number => total / (COMMITS * CALLS_PER_COMMIT)
const room: PostgresRoom = {
  serverUs: usBefore === null || usAfter === null ? null : perCall(usAfter - usBefore),
  logged: perCall(after.logged - before.logged),
  stored: perCall(after.stored - before.stored),
}
await client.end()
await ledger.close()
await database.close()
process.stdout.write(`${JSON.stringify(room)}\n`)

async function commits(count: number): Promise<void> {
  for (let done = 0; done < count; done += 1) await commit()
}

function commit() {
  const entries = Array.from({ length: CALLS_PER_COMMIT }, () => {
    calls += 1
    const caller = { id: `acme::bench-${calls % 20}`, revision: 3, thumbprint: 'ab'.repeat(32) }
    const call = { n: calls, at: Date.now(), caller, model: 'gpt-5' }
    return [decisionOf(call, JUDGING), outcomeOf(call, JUDGING)]
  })
  return ledger.commit({ entries: entries.flat() })
}

async function writer(of: string): Promise<number> {
  const { rows } = await client.query<{ pid: number }>(
    `select pid from pg_locks where locktype = 'advisory' and granted
     and classid = ($1::bigint & 4294967295)::oid and objid = ($2::bigint & 4294967295)::oid`,
    [STREAM_CLASS, streamKey(of)],
  )
  return rows[0]?.pid ?? 0
}

async function used(): Promise<{ readonly logged: number; readonly stored: number }> {
  const { rows } = await client.query<{ logged: string; stored: string }>(
    "select pg_current_wal_lsn() - '0/0' as logged, pg_total_relation_size('audit_rows') as stored",
  )
  return { logged: Number(rows[0]?.logged), stored: Number(rows[0]?.stored) }
}

/** In ns, where the hundredths of a second of `stat` are too coarse. */
function cpuUs(of: number): number | null {
  try {
    const isPostgres = readFileSync(`/proc/${of}/comm`, 'utf8').startsWith('postgres')
    return isPostgres ? Number(readFileSync(`/proc/${of}/schedstat`, 'utf8').split(' ')[0]) / 1_000 : null
  } catch {
    return null
  }
}
