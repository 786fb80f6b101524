import { pino } from 'pino'
import type { Test } from 'tap'
import type { Database } from '../../db/database.ts'
import { openDatabase } from '../../db/engine.ts'
import type { LedgerEntry } from '../../db/ledger/record/entry.ts'
import { type Ledger, openLedger } from '../../db/ledger/record/ledger.ts'
import { newestSegment, nextPlace } from '../../db/ledger/tree/segments.ts'
import { currentTree } from '../../db/ledger/tree/store.ts'
import { commitSegment } from '../../proxy/archive/commit.ts'
import { removeSegment } from '../../proxy/archive/remove.ts'
import { LogKeys, openTree } from '../../proxy/proofs/log-keys.ts'
import { LedgerSealer } from '../../proxy/proofs/sealer.ts'
import { recordState } from '../../proxy/proofs/state-recorder.ts'
import { note, started } from './db/history.ts'
import { AT, entry, VERSION } from './db/scratch-ledger.ts'

export interface ArchivedLog {
  readonly database: Database
  readonly ledger: Ledger
  readonly keys: LogKeys
  readonly sealer: LedgerSealer
  readonly clock: () => number
  readonly configDigest: () => string
  readonly goesOn: () => boolean
}

const NAMED = { trustDomain: 'example.org', organisation: 'acme' }

/** A database with its ledger and its tree. Closed with its test. */
export async function openArchivedLog(t: Pick<Test, 'teardown'>, url: string): Promise<ArchivedLog> {
  const log = await openLog(t, url)
  await openTree(log.keys, log.database, NAMED)
  await log.ledger.commit({ entries: [started] })
  return log
}

/** Opens the log of a gateway that has stopped. */
export async function openLog(
  t: Pick<Test, 'teardown'>,
  url: string,
  clock: () => number = () => AT,
  passphrase = 'of this test',
): Promise<ArchivedLog> {
  const database = await openDatabase(url)
  const ledger = await openLedger({ database, version: VERSION })
  t.teardown(async () => {
    await ledger.close()
    await database.close()
  })
  const keys = new LogKeys({ database, ledger, passphrase, clock })
  const sealer = new LedgerSealer({ database, ledger, keys, clock })
  return { database, ledger, keys, sealer, clock, configDigest: () => 'cd'.repeat(32), goesOn: () => true }
}

const DAY_MS = 86_400_000

/** Records five days up to yesterday, 300 rows and a state each, in the ledger of a log that has begun. */
export async function recordFiveDays(url: string): Promise<void> {
  const after: (() => unknown)[] = []
  let now = Date.now() - 6 * DAY_MS
  const log = await openLog({ teardown: (work) => void after.push(work as () => unknown) }, url, () => now)
  const given = { ...log, log: pino({ level: 'silent' }) }
  await log.ledger.commit({ entries: [{ ...started, at: now }] })
  for (let day = 1; day <= 5; day += 1, now += DAY_MS) {
    const entries = Array.from({ length: 300 }, (_, n) => ({ ...note('audit.reviewed', { n }), at: now }))
    await log.ledger.commit({ entries })
    const tree = await currentTree(log.database.kysely)
    await recordState(given, { tree: tree?.tree ?? 0, leaf: 256 * day }, new AbortController().signal)
  }
  for (const work of after) await work()
}

/** Records calls: a decision and an outcome each. */
export async function recordCalls(
  { ledger }: Pick<ArchivedLog, 'ledger'>,
  calls: number,
  from = 0,
): Promise<void> {
  for (let at = from; at < from + calls; at += 200) {
    const some = Array.from({ length: Math.min(200, from + calls - at) }, (_, n) => at + n)
    await ledger.commit({ entries: some.flatMap((call) => callEntries(call, AT + call)) })
  }
}

/** The decision and the outcome of a call. */
export const callEntries = (call: number, at: number): readonly LedgerEntry[] => {
  const common = { at, request_id: `req_${String(call).padStart(22, '0')}` }
  const names = { principal_id: `acme::bot-${call % 20}`, cert_thumbprint: 'ab'.repeat(32) }
  return [
    entry({
      ...common,
      ...names,
      detail: { path: '/v1/chat/completions', body_sha256: 'ef'.repeat(32), body_bytes: call },
    }),
    entry({
      ...common,
      ...names,
      status: 'success',
      provider: 'openai',
      detail: { status: 200, duration_ms: 12, cost: { microusd: 0, price: null, priced: 'free' } },
    }),
  ]
}

/** Commits a segment that is in no file, up to a leaf. */
export async function commitUpTo(log: ArchivedLog, last: number): Promise<void> {
  const before = await newestSegment(log.database.kysely)
  const first = before ? before.last + 1 : 0
  const [sha256, state] = ['12'.repeat(32), '34'.repeat(32)]
  const lastPlace = await placeOfLeaf(log, last)
  const [since, until] = [new Date(AT).toISOString(), new Date(AT + last).toISOString()]
  const segment = {
    first,
    last,
    last_place: lastPlace,
    sha256,
    state,
    file: `${first}-${last}.zip`,
    bytes: 1,
    since,
    until,
  }
  await commitSegment(log, segment)
}

/** In logs of these tests no transaction was rolled back: the places on PostgreSQL have no gaps. */
export async function placeOfLeaf({ database }: ArchivedLog, leaf: number): Promise<number> {
  const first = await nextPlace(database, 0, Number.MAX_SAFE_INTEGER)
  const segment = await newestSegment(database.kysely)
  return segment ? segment.last_place + leaf - segment.last : (first ?? 1) + leaf
}

export async function archiveUpTo(log: ArchivedLog, last: number): Promise<void> {
  await commitUpTo(log, last)
  const segment = await newestSegment(log.database.kysely)
  if (segment) await removeSegment(log, segment)
}
