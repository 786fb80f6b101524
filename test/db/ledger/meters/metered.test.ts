import { setImmediate as nextTurn } from 'node:timers/promises'
import fc from 'fast-check'
import { sql } from 'kysely'
import t, { type Test } from 'tap'
import { openDatabase } from '../../../../db/engine.ts'
import type { MeterReservation } from '../../../../db/ledger/meters/meter-book.ts'
import { FOR_EVER, UNDER_WAY } from '../../../../db/ledger/meters/span.ts'
import { verifyDatabase } from '../../../../db/ledger/read/read.ts'
import { openLedger } from '../../../../db/ledger/record/ledger.ts'
import { hasOldMeters, pruneMeters } from '../../../../db/limits/store.ts'
import { claimOnce } from '../../../../db/single-uses.ts'
import { databaseUrl, ENGINE } from '../../../support/db/engine.ts'
import { numberedLimits, reserve, settle } from '../../../support/db/metered-calls.ts'
import { AT, entry, VERSION } from '../../../support/db/scratch-ledger.ts'

const CALLS: MeterReservation = {
  ...{ limit: 'lim_calls', who: '', span: FOR_EVER },
  ...{ took: 1, most: 10, refuses: true },
}
const AT_ONCE: MeterReservation = { ...CALLS, limit: 'lim_at_once', span: UNDER_WAY }

async function opened(t: Test, directory = t.testdir()) {
  const database = await openDatabase(await databaseUrl(directory))
  const ledger = await openLedger({ database, version: VERSION })
  const meters = () => database.kysely.selectFrom('limit_meters').selectAll().orderBy('limit_id').execute()
  const rows = () =>
    database.kysely
      .selectFrom('audit_log')
      .select(['status', 'detail', 'request_id'])
      .orderBy('seq')
      .execute()
  const close = async () => {
    await ledger.close()
    t.match(await verifyDatabase(database.kysely), { ok: true })
    await database.close()
  }
  return { database, ledger, meters, rows, close, directory }
}

t.test('of 200 calls at once on a budget for ten, exactly ten pass', async (t) => {
  const { ledger, meters, rows, close } = await opened(t)
  const ids = Array.from({ length: 200 }, (_, n) => `req_${n}`)
  const passed = await Promise.all(ids.map((id) => reserve(ledger, id, [CALLS])))
  t.equal(passed.filter(Boolean).length, 10)
  t.match(await meters(), [{ limit_id: 'lim_calls', n: 10, reserved: 10, spent: 0 }])
  const ended = { limit: CALLS.limit, who: '', span: FOR_EVER, took: 1, charged: 1 }
  await Promise.all(ids.flatMap((id, n) => (passed[n] ? [settle(ledger, id, [ended])] : [])))
  t.match(await meters(), [{ n: 20, reserved: 0, spent: 10 }], 'all ended: nothing is reserved')
  t.equal(await reserve(ledger, 'req_late', [CALLS]), false, 'the budget stays used up')
  const numbered = numberedLimits(await rows())
  t.same(
    numbered.map(({ n }) => n),
    Array.from({ length: 20 }, (_, index) => index + 1),
    'no number is left out',
  )
  t.same(
    numbered.slice(0, 10).map(({ used }) => used),
    Array.from({ length: 10 }, (_, used) => used),
  )
  await close()
})

t.test('of ten that may be under way an eleventh never is, and each end makes room for one', async (t) => {
  const { ledger, close } = await opened(t)
  const ended = { limit: AT_ONCE.limit, who: '', span: UNDER_WAY, took: 1, charged: 0 }
  let [underWay, most] = [0, 0]
  await Promise.all(
    Array.from({ length: 60 }, async (_, n) => {
      const id = `req_${n}`
      while (!(await reserve(ledger, id, [AT_ONCE])));
      underWay += 1
      most = Math.max(most, underWay)
      for (let turn = 0; turn < 20; turn += 1) await nextTurn()
      underWay -= 1
      await settle(ledger, id, [ended])
    }),
  )
  t.equal(most, 10, 'as many as may be, and no more')
  t.equal(await reserve(ledger, 'req_last', [AT_ONCE]), true)
  await close()
})

t.test(
  'after each commit what is spent and held is within the amount, but for what calls cost beyond it',
  async (t) => {
    const { ledger, meters, rows, close } = await opened(t)
    const most = 200
    for (const strict of [true, false]) {
      const budget = { ...CALLS, limit: strict ? 'lim_strict' : 'lim_loose', most }
      const calls = fc.sample(
        fc.record({ took: fc.integer({ min: 1, max: 40 }), more: fc.integer({ min: -40, max: 20 }) }),
        { numRuns: 120, seed: 7 },
      )
      const charged = new Map<number, number>()
      await Promise.all(
        calls.map(async ({ took, more }, n) => {
          const id = `req_${budget.limit}_${n}`
          if (!(await reserve(ledger, id, [{ ...budget, took }]))) return
          const costs = Math.max(0, took + (strict ? Math.min(0, more) : more))
          charged.set(n, costs)
          // Some end together with others that begin, and some after them.
          if (n % 3 > 0) await settle(ledger, id, [{ ...budget, took, charged: costs }])
        }),
      )
      for (const [n, costs] of charged) {
        const took = calls[n]?.took ?? 0
        const id = `req_${budget.limit}_${n}`
        if (n % 3 === 0) await settle(ledger, id, [{ ...budget, took, charged: costs }])
      }
      const took = new Map<string, number>()
      let [used, beyond, places] = [0, 0, 0]
      for (const { detail, request_id: request } of await rows()) {
        const [one] = JSON.parse(detail).limits
        if (one.id !== budget.limit) continue
        places += 1
        t.equal(one.n, places)
        if (one.charged === undefined) {
          t.equal(one.used, used, 'the row says what was used before it')
          took.set(String(request), one.took)
          used += one.took
        } else {
          const held = took.get(String(request)) ?? 0
          used += one.charged - held
          beyond += Math.max(0, one.charged - held)
        }
        t.ok(used <= most + beyond && (!strict || beyond === 0), `${used} at ${places}`)
      }
      const meter = (await meters()).find(({ limit_id: id }) => id === budget.limit)
      const spent = [...charged.values()].reduce((sum, one) => sum + one, 0)
      t.match(meter, { reserved: 0, spent }, 'all have ended: nothing is held, and what was charged is spent')
    }
    await close()
  },
)

t.test('a call takes of all its limits or of none, and a refused one has claimed nothing', async (t) => {
  const { database, ledger, meters, close } = await opened(t)
  const little = { ...CALLS, limit: 'lim_little', most: 1 }
  t.equal(await reserve(ledger, 'req_1', [CALLS, little]), true)
  const claim = claimOnce(database, 'ab'.repeat(32), AT + 60_000)
  const row = (id: string) => entry({ request_id: id, detail: {} })
  await t.rejects(
    ledger.commit({ reservations: [little], statements: [claim], entries: [] }),
    /rows leave 0 places/,
    'a row must say what it takes',
  )
  await t.rejects(
    ledger.commit({
      ...{ reservations: [little], statements: [{ sql: 'select 1', parameters: [] }] },
      entries: [row('req_2')],
    }),
    /changes nothing else/,
  )
  t.equal(await reserve(ledger, 'req_3', [CALLS, little]), false)
  t.match(await meters(), [
    { limit_id: 'lim_calls', n: 1 },
    { limit_id: 'lim_little', n: 1 },
  ])
  await close()
})

t.test('meters of windows that were over long ago are forgotten, and no others', async (t) => {
  const { database, ledger, meters, close } = await opened(t)
  for (const span of ['2024-10-01T00:00:00.000Z', '2025-12-01T00:00:00.000Z', FOR_EVER, 'steady', UNDER_WAY])
    t.equal(await reserve(ledger, `req_${span}`, [{ ...CALLS, span }]), true)
  t.equal(await hasOldMeters(database, AT), true)
  await ledger.commit({ statements: [pruneMeters(database, AT)], entries: [] })
  t.same((await meters()).map(({ span }) => span).toSorted(), [
    '2025-12-01T00:00:00.000Z',
    'ever',
    'now',
    'steady',
  ])
  t.equal(await hasOldMeters(database, AT), false)
  await close()
})

t.test('so many meters are forgotten at once and no more, however many a window has', async (t) => {
  const { database, ledger, meters, close } = await opened(t)
  const old = { ...CALLS, span: '2024-10-01T00:00:00.000Z' }
  for (const who of ['one', 'two', 'three'])
    t.equal(await reserve(ledger, `req_${who}`, [{ ...old, who }]), true)
  const prune = () => ledger.commit({ statements: [pruneMeters(database, AT, 2)], entries: [] })
  await prune()
  t.equal((await meters()).length, 1)
  await prune()
  t.same(await meters(), [])
  await close()
})

t.test('the meters of one span are found by an index, not among all that a limit has', async (t) => {
  const { database, close } = await opened(t)
  // PostgreSQL plans by how many rows there are: there it is enough that there is one.
  const query =
    ENGINE === 'sqlite'
      ? sql`explain query plan select spent from limit_meters where limit_id = 'a' and span = 'b'`
      : sql`select indexname from pg_indexes where tablename = 'limit_meters'`
  t.match(JSON.stringify((await query.execute(database.kysely)).rows), 'limit_meters_of_span')
  await close()
})

t.test('calls that a dead process left open are charged what they held, once', async (t) => {
  const first = await opened(t)
  const each = { ...CALLS, limit: 'lim_each', who: 'acme::bot', took: 3, most: 100 }
  t.equal(await reserve(first.ledger, 'req_open', [each, AT_ONCE], { held_microusd: 3 }), true)
  t.equal(await reserve(first.ledger, 'req_ended', [each]), true)
  await settle(first.ledger, 'req_ended', [{ ...each, charged: 2 }])
  await first.close()
  // On PostgreSQL others close the calls of a stream only when it has been gone for a while.
  if (ENGINE === 'sqlite') {
    const next = await opened(t, first.directory)
    t.equal(await next.ledger.recover(AT, 'cd'.repeat(32)), 1)
    t.equal(await next.ledger.recover(AT, 'cd'.repeat(32)), 0)
    t.match(await next.meters(), [
      { limit_id: 'lim_at_once', n: 2, reserved: 0, spent: 0 },
      { limit_id: 'lim_each', n: 4, reserved: 0, spent: 5 },
    ])
    const unknown = (await next.rows()).filter(({ status }) => status === 'unknown')
    const cost = { microusd: 3, price: null, priced: 'reserved' }
    t.match(
      unknown.map(({ detail }) => JSON.parse(detail)),
      [{ reason: 'crash', cost, limits: [{ charged: 3 }, { charged: 0 }] }],
    )
    const counted = await next.database.rowCounts.portion(0, 1_000)
    t.match(counted.spends, [{ microusd: 3, calls: 1, estimated_microusd: 3, unpriced_calls: 0 }])
    await next.close()
  }
})
