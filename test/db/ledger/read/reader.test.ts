import { rename } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { json, text } from 'node:stream/consumers'
import t from 'tap'
import type { Database } from '../../../../db/database.ts'
import { openDatabase } from '../../../../db/engine.ts'
import { type RowFilter, rowsQuery, spanEndQuery } from '../../../../db/ledger/read/find.ts'
import type { LedgerPage } from '../../../../db/ledger/read/read.ts'
import type { LedgerEntry } from '../../../../db/ledger/record/entry.ts'
import type { StoredRow } from '../../../../db/ledger/record/leaf.ts'
import { fillLedger } from '../../../support/db/many-rows.ts'
import {
  AT,
  appendCalls,
  entry,
  open,
  reader,
  rowsOf,
  scratchDatabase,
  withRaw,
} from '../../../support/db/scratch-ledger.ts'

const ROWS = 6_000
const NEVER = new AbortController().signal

const pageOf = async (db: Database, filter: RowFilter): Promise<LedgerPage> =>
  (await json(Readable.from(await db.audit.list(filter, NEVER)))) as LedgerPage

/** The seqs of all pages, one after the other. */
async function seqsOf(db: Database, filter: RowFilter): Promise<readonly number[]> {
  const { rows, next_cursor: cursor } = await pageOf(db, filter)
  const seqs = rows.map(({ seq }) => seq)
  if (cursor === null) return seqs
  if (rows.length !== filter.limit) throw new Error(`a page of ${rows.length} is not the last one`)
  return [...seqs, ...(await seqsOf(db, { ...filter, cursor }))]
}

// The clock stands still for more rows than a span has, goes back, and passes on.
const clockAt = (seq: number): number => AT + (seq <= 2_000 ? 0 : seq <= 4_000 ? -Math.floor(seq / 3) : seq)

const rowOf = (seq: number): LedgerEntry =>
  entry({
    at: clockAt(seq),
    request_id: seq % 50 === 0 ? null : `req_${Math.floor(seq / 2)}`,
    principal_id: seq % 11 === 0 ? null : `acme::${seq % 3}`,
    action: seq === 77 || seq === 5_000 ? 'rare' : seq % 4 === 0 ? 'mcp_tools_call' : 'egress_llm_chat',
    status: seq % 997 === 0 ? 'denied' : seq % 2 === 0 ? 'success' : 'allowed',
    detail: { seq },
  })

const FILTERS: readonly RowFilter[] = [
  {},
  { status: 'denied' },
  { status: 'success' },
  { status: 'nothing' },
  { principal: 'acme::1' },
  { principal: 'nobody' },
  { action: 'rare' },
  { action: 'mcp_tools_call', status: 'denied' },
  { principal: 'acme::2', action: 'rare' },
  { principal: 'acme::0', action: 'egress_llm_chat', status: 'allowed' },
  { request_id: 'req_40' },
  { request_id: 'req_40', principal: 'acme::1', action: 'egress_llm_chat', status: 'allowed' },
  { since: AT },
  { until: AT },
  { since: AT - 900, until: AT + 4_500, status: 'denied' },
  { since: AT + 1, principal: 'acme::1', status: 'success' },
  { since: AT, until: AT },
]

const OTHERS: readonly RowFilter[] = [
  { since: AT + 100 },
  { until: AT - 100 },
  { since: AT - 100, until: AT + 5_000, principal: 'acme::1' },
]

/** The answer as one plain question to the table gives it. */
function oracle(rows: readonly StoredRow[], { order = 'desc', ...filter }: RowFilter): readonly number[] {
  const time = (at: number | undefined, otherwise: string) =>
    at === undefined ? otherwise : new Date(at).toISOString()
  const fits = rows.filter(
    (row) =>
      row.recorded_at >= time(filter.since, '') &&
      row.recorded_at < time(filter.until, '9') &&
      (filter.principal === undefined || row.principal_id === filter.principal) &&
      (filter.action === undefined || row.action === filter.action) &&
      (filter.status === undefined || row.status === filter.status) &&
      (filter.request_id === undefined || row.request_id === filter.request_id),
  )
  const ascending = fits.toSorted((a, b) =>
    a.recorded_at === b.recorded_at ? a.seq - b.seq : a.recorded_at < b.recorded_at ? -1 : 1,
  )
  return (order === 'asc' ? ascending : ascending.reverse()).map(({ seq }) => seq)
}

t.test('A7: every filter in both orders gives what a plain question to the table gives', async (t) => {
  const file = await scratchDatabase(t.testdir())
  fillLedger(file, ROWS, rowOf)
  const all = rowsOf(file)
  const db = await reader(t, file)
  for (const order of ['asc', 'desc'] as const) {
    for (const filter of FILTERS) {
      const expected = oracle(all, { ...filter, order })
      for (const limit of [1_000, 333]) {
        t.same(await seqsOf(db, { ...filter, order, limit }), expected, JSON.stringify({ ...filter, order }))
      }
      const few = await pageOf(db, { ...filter, order, limit: 1 })
      t.same(
        few.rows.map(({ seq }) => seq),
        expected.slice(0, 1),
      )
      t.equal(few.next_cursor !== null, expected.length > 1)
    }
  }
})

t.test('A7: a cursor that another filter gave means the same place', async (t) => {
  const file = await scratchDatabase(t.testdir())
  fillLedger(file, ROWS, rowOf)
  const all = rowsOf(file)
  const db = await reader(t, file)
  for (const order of ['asc', 'desc'] as const) {
    const whole = oracle(all, { order })
    for (const limit of [1, 700, 1_000]) {
      const { next_cursor: cursor } = await pageOf(db, { order, limit })
      for (const filter of OTHERS) {
        const expected = oracle(all, { ...filter, order }).filter(
          (seq) => !whole.slice(0, limit).includes(seq),
        )
        const { rows } = await pageOf(db, { ...filter, order, limit: 1_000, cursor: cursor ?? '' })
        t.same(
          rows.map(({ seq }) => seq),
          expected.slice(0, 1_000),
          JSON.stringify({ ...filter, order, limit }),
        )
      }
    }
  }
})

t.test('A7: pages meet while rows are appended', async (t) => {
  const file = await scratchDatabase(t.testdir())
  const ledger = await open(file)
  t.teardown(() => ledger.close())
  await appendCalls(ledger, 200)
  const db = await reader(t, file)
  for (const order of ['asc', 'desc'] as const) {
    const before = oracle(rowsOf(file), { order })
    const seen: number[] = []
    let cursor: string | null = null
    do {
      const page: LedgerPage = await pageOf(db, { order, limit: 60, ...(cursor === null ? {} : { cursor }) })
      seen.push(...page.rows.map(({ seq }) => seq))
      cursor = page.next_cursor
      // Newer by the clock than all that was there.
      if (seen.length < 400) await appendCalls(ledger, 5, 10_000 + seen.length)
    } while (cursor !== null)
    t.same(seen, order === 'asc' ? oracle(rowsOf(file), { order }) : before, order)
  }
})

t.test('A7: each question goes by an index, in which it reads one span', async (t) => {
  const file = await scratchDatabase(t.testdir())
  const { kysely } = await reader(t, file)
  const spans: readonly Parameters<typeof rowsQuery>[2][] = [
    { from: { recorded_at: 'b' }, edge: 'a' },
    { from: { recorded_at: 'b', stream: 'main', seq: 1 }, edge: 'a' },
    { from: null, edge: null },
  ]
  withRaw(file, (raw) => {
    const planOf = ({ sql, parameters }: { readonly sql: string; readonly parameters: readonly unknown[] }) =>
      raw.prepare<unknown[], { detail: string }>(`explain query plan ${sql}`).all(...parameters)
    for (const order of ['asc', 'desc'] as const) {
      for (const filter of FILTERS.map((some) => ({ ...some, order }))) {
        const { request_id: request, principal, action, status } = filter
        const rare = action !== undefined && action !== 'mcp_tools_call'
        const by = request
          ? 'request'
          : principal
            ? 'principal'
            : rare
              ? 'action'
              : status === 'denied'
                ? 'denied'
                : 'time'
        for (const span of spans) {
          const [rows] = planOf(rowsQuery(kysely, filter, span, 10).compile())
          const what = JSON.stringify({ filter, span })
          t.match(rows?.detail, new RegExp(`^(SEARCH|SCAN) audit_rows USING INDEX audit_rows_${by}\\b`), what)
          if (!request && span.edge) t.match(rows?.detail, /recorded_at>\? AND recorded_at<\?/, what)
          if (request) t.match(rows?.detail, 'request_id=?', what)
          const [end] = planOf(spanEndQuery(kysely, filter, span.from).compile())
          const ofIndex = `^(SEARCH|SCAN) audit_rows USING COVERING INDEX audit_rows_${by}\\b`
          if (!request) t.match(end?.detail, new RegExp(ofIndex), what)
        }
      }
    }
  })
})

t.test('A7: an answer that is not read holds no snapshot, and ends with its signal', async (t) => {
  const file = await scratchDatabase(t.testdir())
  fillLedger(file, 3_000, rowOf)
  const db = await reader(t, file)
  const gone = new AbortController()
  const [exported] = await Promise.all([db.audit.export(gone.signal)])
  const ledger = await open(file)
  t.teardown(() => ledger.close())
  await appendCalls(ledger, 200)
  const moved = withRaw(file, (raw) => raw.pragma('wal_checkpoint(truncate)'))
  t.match(moved, [{ busy: 0, log: 0 }], 'the whole write-ahead log was moved into the database')
  const others = await Promise.all([1, 2, 3, 4, 5, 6, 7, 8, 9].map(() => db.audit.export(gone.signal)))
  await t.rejects(db.audit.export(NEVER), { name: 'Error', code: 'busy' }, 'an eleventh at one time')
  await t.rejects(db.audit.verify(NEVER), { code: 'busy' }, 'a verification is as much work')
  t.match(await pageOf(db, { limit: 1 }), { rows: [{ seq: 3_400 }] }, 'a page is still read')
  gone.abort()
  for (const one of [exported, ...others]) await t.rejects(text(Readable.from(one)), 'it has ended')
  t.match(await db.audit.verify(NEVER), { ok: true, rows: 3_400 })
})

t.test('A7: a page does not wait for the long questions that were asked before', async (t) => {
  const file = await scratchDatabase(t.testdir())
  fillLedger(file, 3 * ROWS, rowOf)
  const db = await reader(t, file)
  const answered: string[] = []
  const noted = (what: string, work: Promise<unknown>) => work.then(() => answered.push(what))
  await Promise.all([
    ...[1, 2, 3].map(() => noted('whole', db.audit.verify(NEVER))),
    ...[1, 2, 3, 4, 5].map(() => noted('scan', pageOf(db, { status: 'nothing' }))),
    noted('page', pageOf(db, {})),
  ])
  t.equal(answered[0], 'page')
})

t.test('A7: a thread that ends fails its question, and the next one starts another', async (t) => {
  const file = await scratchDatabase(t.testdir())
  fillLedger(file, 10, rowOf)
  const db = await reader(t, file)
  await rename(file, `${file}-away`)
  await t.rejects(db.audit.verify(NEVER), /unable to open database file/)
  await rename(`${file}-away`, file)
  t.match(await db.audit.verify(NEVER), { ok: true, rows: 10 })
})

t.test('A7: a question that is aborted leaves the thread to the others', async (t) => {
  const file = await scratchDatabase(t.testdir())
  fillLedger(file, 3_000, rowOf)
  const db = await reader(t, file)
  const gone = new AbortController()
  const asked = Array.from({ length: 16 }, () => db.audit.list({ status: 'nothing' }, gone.signal))
  await t.rejects(db.audit.list({}, NEVER), { code: 'busy' })
  gone.abort()
  for (const one of asked) await t.rejects(one, { name: 'AbortError' })
  t.match(await pageOf(db, { limit: 1 }), { rows: [{}] })
  await t.rejects(db.audit.list({}, gone.signal), { name: 'AbortError' }, 'nor begins one that was aborted')
})

t.test('A7: a database in memory is read by its own connection', async (t) => {
  const db = await openDatabase('sqlite::memory:')
  t.teardown(db.close)
  t.same(await pageOf(db, {}), { rows: [], next_cursor: null })
  t.equal(await text(Readable.from(await db.audit.export(NEVER))), '')
  t.match(await db.audit.verify(NEVER), { ok: true, rows: 0 })
})
