import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import type { LedgerUnit } from '../../../../db/ledger/record/entry.ts'
import { GENESIS_HASH } from '../../../../db/ledger/record/leaf.ts'
import type { JsonObject } from '../../../../db/support/json.ts'
import {
  appendCalls,
  commitsInLog,
  entry,
  open,
  rowsOf,
  scratchDatabase,
  VERSION,
  verifyFile,
  withRaw,
} from '../../../support/db/scratch-ledger.ts'

const setting = (key: string) => ({
  sql: 'insert into settings (key, value, updated_at) values (?, ?, ?)',
  parameters: [key, 'v', '2026-01-01T00:00:00.000Z'],
})
const settingsOf = (file: string): unknown[] =>
  withRaw(file, (db) => db.prepare('select key from settings order by key').pluck().all())

t.test(
  'docs/ledger.md#streams: rows of the one stream are numbered from 1 and each holds the hash of the one before',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const ledger = await open(file)
    t.equal(ledger.head, null)
    const [first] = await ledger.commit({ entries: [entry()] })
    const sealed = await ledger.commit({
      entries: [entry({ status: 'success' }), entry({ status: 'denied' })],
    })
    t.same(ledger.head, sealed[1])
    await ledger.close()
    const [one, two, three] = rowsOf(file)
    t.match(one, { stream: 'main', seq: 1, prev_hash: GENESIS_HASH, row_hash: first?.hash, version: VERSION })
    t.match(two, { seq: 2, prev_hash: one?.row_hash, row_hash: sealed[0]?.hash })
    t.match(three, { seq: 3, prev_hash: two?.row_hash, row_hash: sealed[1]?.hash })

    const again = await open(file)
    t.same(again.head, sealed[1], 'the next run goes on where the last one ended')
    t.match(await again.commit({ entries: [entry()] }), [{ stream: 'main', seq: 4 }])
    await again.close()
    t.match(await verifyFile(file), { ok: true, rows: 4, streams: 1 })
  },
)

t.test('docs/ledger.md#appending: what waits together is committed together', async (t) => {
  const file = await scratchDatabase(t.testdir())
  const ledger = await open(file)
  await appendCalls(ledger, 100)
  // Before the close, which moves the log into the database.
  const transactions = commitsInLog(`${file}-wal`)
  await ledger.close()
  t.equal(rowsOf(file).length, 200)
  t.ok(transactions >= 2 && transactions < 50, `200 rows in ${transactions} transactions`)
})

t.test('B1 a unit whose assertion finds no row is refused alone, and nothing of it is stored', async (t) => {
  const file = await scratchDatabase(t.testdir())
  const ledger = await open(file)
  const stands = (key: string) => ({ sql: 'select 1 from settings where key = ?', parameters: [key] })
  const remove = { sql: 'delete from settings where key = ?', parameters: ['a'], changes: 1 }
  // Of one batch: each sees what those in front of it have written.
  const outcomes = await Promise.allSettled([
    ledger.commit({ statements: [setting('a')], entries: [entry({ request_id: 'made' })] }),
    ledger.commit({ assertions: [stands('a')], entries: [entry({ request_id: 'before' })] }),
    ledger.commit({ statements: [remove], entries: [entry({ request_id: 'revoked' })] }),
    ledger.commit({
      assertions: [stands('a')],
      statements: [setting('b')],
      entries: [entry({ request_id: 'behind' })],
    }),
    ledger.commit({ entries: [entry({ request_id: 'other' })] }),
    ledger.commit({ assertions: [{ sql: 'select nonsense', parameters: [] }], entries: [entry()] }),
  ])
  t.match(
    outcomes.map((outcome) => (outcome.status === 'fulfilled' ? 'stored' : outcome.reason)),
    ['stored', 'stored', 'stored', { code: 'stale' }, 'stored', /nonsense/],
  )
  t.notOk(ledger.failing)
  await ledger.close()
  t.same(
    rowsOf(file).map((row) => row.request_id),
    ['made', 'before', 'revoked', 'other'],
  )
  t.same(settingsOf(file), [])
  t.match(await verifyFile(file), { ok: true, rows: 4 })
})

t.test('docs/ledger.md#appending: statements and their rows are stored both or not at all', async (t) => {
  const file = await scratchDatabase(t.testdir())
  const ledger = await open(file)
  const done = await ledger.commit({
    statements: [setting('a')],
    entries: [entry({ action: 'agent.created' })],
  })
  t.match(done, [{ seq: 1 }])
  t.same(await ledger.commit({ statements: [setting('b')], entries: [] }), [], 'statements alone')
  // The second statement fails after the first one has run.
  await t.rejects(ledger.commit({ statements: [setting('c'), setting('a')], entries: [entry()] }), {
    code: 'duplicate',
  })
  await ledger.close()
  t.same(settingsOf(file), ['a', 'b'])
  t.equal(rowsOf(file).length, 1)
})

t.test('docs/ledger.md#appending: a unit that is refused takes nobody in its batch with it', async (t) => {
  const file = await scratchDatabase(t.testdir())
  const ledger = await open(file)
  const update = (key: string) => ({
    sql: 'update settings set value = ? where key = ?',
    parameters: ['w', key],
    changes: 1,
  })
  // One turn of the event loop: one batch.
  const outcomes = await Promise.allSettled([
    ledger.commit({ statements: [setting('a')], entries: [entry()] }),
    ledger.commit({ statements: [setting('b'), update('nobody')], entries: [entry()] }),
    ledger.commit({ statements: [setting('a')], entries: [entry()] }),
    ledger.commit({ statements: [{ sql: 'select nonsense', parameters: [] }], entries: [entry()] }),
    ledger.commit({ statements: [{ sql: 'delete from audit_rows', parameters: [] }], entries: [entry()] }),
    ledger.commit({ statements: [update('a')], entries: [entry()] }),
    ledger.commit({ entries: [entry()] }),
  ])
  t.match(outcomes, [
    { status: 'fulfilled', value: [{ seq: 1 }] },
    { status: 'rejected', reason: { code: 'conflict', message: /changed 0 rows, not 1/ } },
    { status: 'rejected', reason: { code: 'duplicate' } },
    { status: 'rejected', reason: { message: /nonsense/ } },
    { status: 'rejected', reason: { code: 'conflict', message: 'audit_log is append-only' } },
    { status: 'fulfilled', value: [{ seq: 2 }] },
    { status: 'fulfilled', value: [{ seq: 3 }] },
  ])
  await ledger.close()
  t.same(settingsOf(file), ['a'])
  t.match(await verifyFile(file), { ok: true, rows: 3 })
})

t.test('docs/ledger.md#row: a float in detail refuses its unit before it joins the line', async (t) => {
  const file = await scratchDatabase(t.testdir())
  const ledger = await open(file)
  const detail: JsonObject = { latency_ms: 0.5 }
  const [bad, good] = await Promise.allSettled([
    ledger.commit({ entries: [entry({ detail })] }),
    ledger.commit({ entries: [entry()] }),
  ])
  t.match(bad, { status: 'rejected', reason: { name: 'TypeError', message: /detail\.latency_ms is 0\.5/ } })
  t.match(good, { status: 'fulfilled', value: [{ seq: 1 }] })
  const unbindable = { sql: 'select ?', parameters: [() => 1] }
  await t.rejects(ledger.commit({ statements: [unbindable], entries: [] }), { name: 'TypeError' })
  await ledger.close()
})

t.test(
  'docs/ledger.md#appending: the line is bounded; past the bound a unit is refused at once',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const ledger = await open(file, { queueLimit: 4 })
    const kept = [1, 2].map(() => ledger.commit({ entries: [entry(), entry()] }))
    t.equal(ledger.waiting, 4)
    await t.rejects(ledger.commit({ entries: [entry()] }), { code: 'busy' })
    await t.rejects(ledger.commit({ entries: [], statements: [setting('a')] }), { code: 'busy' })
    await Promise.all(kept)
    t.equal(ledger.waiting, 0)
    t.match(
      await ledger.commit({ entries: [entry()] }),
      [{ seq: 5 }],
      'and accepted when the line is short again',
    )
    await ledger.close()
  },
)

t.test(
  'H2 docs/ledger.md#appending: calls that fill the line leave room for outcomes, and for changes',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const ledger = await open(file, { queueLimit: 64 })
    let made = 0
    const one = (kind: 'call' | 'outcome' | 'change'): LedgerUnit => {
      made += 1
      const stored = setting(`${kind} ${made}`)
      if (kind === 'outcome') return lazy('over')
      return { statements: [kind === 'call' ? { ...stored, beside: 'claim' } : stored], entries: [entry()] }
    }
    // In one turn of the loop: nothing of it is stored meanwhile.
    const came = (['call', 'outcome', 'change', 'call', 'outcome'] as const).map((kind) =>
      Promise.allSettled(Array.from({ length: 65 }, () => ledger.commit(one(kind)))),
    )
    const taken: number[] = []
    for (const results of await Promise.all(came)) {
      taken.push(results.filter(({ status }) => status === 'fulfilled').length)
      for (const result of results) if (result.status === 'rejected') t.match(result.reason, { code: 'busy' })
    }
    t.same(taken, [48, 8, 8, 0, 0])
    t.equal(rowsOf(file).length, 64)
    await ledger.close()
  },
)

t.test('a unit of many rows is drafted in slices: others have their turn, and it is one unit', async (t) => {
  const file = await scratchDatabase(t.testdir())
  const ledger = await open(file)
  let turns = 0
  let isOver = false
  const others = (async () => {
    for (; !isOver; turns += 1) await nextTurn()
  })()
  const entries = Array.from({ length: 1_000 }, (_, at) => entry({ detail: { at } }))
  const committing = ledger.commit({ entries, statements: [setting('many')] })
  const [alone] = await ledger.commit({ entries: [entry()] })
  t.equal(alone?.seq, 1, 'who comes meanwhile goes first')
  const sealed = await committing
  isOver = true
  await others
  t.ok(turns > 30, `${turns} turns`)
  t.same(
    sealed.map(({ seq }) => seq),
    entries.map((_, at) => at + 2),
  )
  t.same(settingsOf(file).includes('many'), true)
  await t.rejects(ledger.commit({ entries: [...entries, entry({ detail: { half: 0.5 } })] }), TypeError)
  await ledger.close()
  t.equal(rowsOf(file).length, 1_001, 'nothing of the refused one')
})

t.test('docs/ledger.md#appending: close stores what waits and takes nothing more', async (t) => {
  const file = await scratchDatabase(t.testdir())
  const ledger = await open(file)
  const waiting = Array.from({ length: 600 }, () => ledger.commit({ entries: [entry()] }))
  const closed = ledger.close()
  await t.rejects(ledger.commit({ entries: [entry()] }), { code: 'closed' })
  t.equal((await Promise.all(waiting)).length, 600)
  await closed
  await ledger.close()
  t.equal(rowsOf(file).length, 600)
})

/** What `promise` has become by now, or `never`. */
const byNow = (promise: Promise<unknown>): Promise<unknown> =>
  Promise.race([promise, nextTurn().then(() => 'never')])

const AN_HOUR_MS = 3_600_000
const lazy = (request_id: string) => ({ entries: [entry({ request_id, status: 'success' })], lazy: true })

t.test(
  'docs/ledger.md#appending: a lazy unit waits for one that is not, and shares its transaction, in the order of coming',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const ledger = await open(file, { delayMs: AN_HOUR_MS })
    await ledger.commit({ entries: [entry()] })
    const before = commitsInLog(`${file}-wal`)
    const outcomes = [ledger.commit(lazy('a')), ledger.commit(lazy('b'))]
    t.equal(await byNow(Promise.any(outcomes)), 'never')
    t.equal(ledger.waiting, 2, 'and counts as waiting')
    t.match(await ledger.commit({ entries: [entry({ request_id: 'c' })] }), [{ seq: 4 }])
    t.match(await Promise.all(outcomes), [[{ seq: 2 }], [{ seq: 3 }]])
    t.equal(commitsInLog(`${file}-wal`) - before, 1)
    await ledger.close()
    t.same(
      rowsOf(file).map(({ request_id: id }) => id),
      ['req_1', 'a', 'b', 'c'],
    )
  },
)

t.test('docs/ledger.md#appending: lazy units go by themselves when nobody comes', async (t) => {
  const file = await scratchDatabase(t.testdir())
  const ledger = await open(file, { delayMs: 1 })
  t.match(await ledger.commit(lazy('a')), [{ seq: 1 }])
  const busy = ledger.commit({ entries: [entry()] })
  await nextTurn()
  const [, late] = await Promise.all([busy, ledger.commit(lazy('b'))])
  t.match(late, [{ seq: 3 }], 'also one that came while another batch was under way')
  await ledger.close()
})

t.test(
  'docs/ledger.md#appending: lazy units are stored by close, and a full batch of them waits for nobody',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const ledger = await open(file, { delayMs: AN_HOUR_MS })
    const batch = Array.from({ length: 512 }, () => ledger.commit(lazy('a')))
    t.equal((await Promise.all(batch)).length, 512)
    const last = ledger.commit(lazy('z'))
    await ledger.close()
    t.match(await last, [{ seq: 513 }])
  },
)

t.test(
  'docs/ledger.md#appending: a line that is full of lazy units moves on when it has refused somebody',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const ledger = await open(file, { delayMs: AN_HOUR_MS, queueLimit: 2 })
    const two = [ledger.commit(lazy('a')), ledger.commit(lazy('b'))]
    await t.rejects(ledger.commit({ entries: [entry()] }), { code: 'busy' })
    t.match(await Promise.all(two), [[{ seq: 1 }], [{ seq: 2 }]])
    await ledger.close()
  },
)
