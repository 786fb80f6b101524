import { hash } from 'node:crypto'
import { Client } from 'pg'
import t from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { reservedDetail, settledDetail } from '../../../db/ledger/meters/detail.ts'
import type { MeterReservation } from '../../../db/ledger/meters/meter-book.ts'
import { FOR_EVER, UNDER_WAY } from '../../../db/ledger/meters/span.ts'
import { openLedger, recoveryUnits } from '../../../db/ledger/record/ledger.ts'
import { AbandonedStreams } from '../../../db/postgres/ledger/unfinished.ts'
import { claimOnce } from '../../../db/single-uses.ts'
import { numberedLimits, reserve, settle } from '../../support/db/metered-calls.ts'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { raw, replica } from '../../support/db/postgres/replica.ts'
import { countedWay } from '../../support/db/postgres/turns.ts'
import { AT, entry, VERSION } from '../../support/db/scratch-ledger.ts'

const server = await cluster()

const budget = (limit: string, most: number): MeterReservation => ({
  ...{ limit, who: '', span: FOR_EVER },
  ...{ took: 1, most, refuses: true },
})

t.test('of 200 calls at once on a budget for ten, exactly ten pass, over three replicas', async (t) => {
  const url = await server.migrated()
  const all = await Promise.all([replica(t, url), replica(t, url), replica(t, url)])
  // Each call asks for both, in the other order on every second one: no two replicas wait for each other for ever.
  const limits = [budget('lim_ten', 10), budget('lim_twelve', 12)]
  const passed = await Promise.all(
    Array.from({ length: 201 }, (_, n) => {
      const { ledger } = all[n % 3] ?? all[0]
      return reserve(ledger, `req_${n}`, n % 2 === 0 ? limits : limits.toReversed())
    }),
  )
  t.equal(passed.filter(Boolean).length, 10)
  const ended = limits.map((wish) => ({ ...wish, charged: 1 }))
  await Promise.all(
    passed.flatMap((isPassed, n) =>
      isPassed ? [settle(all[(n + 1) % 3]?.ledger ?? all[0].ledger, `req_${n}`, ended)] : [],
    ),
  )
  const { rows: meters } = await raw(
    url,
    'select limit_id, n::int, reserved::int, spent::int from limit_meters order by limit_id',
  )
  t.same(meters, [
    { limit_id: 'lim_ten', n: 20, reserved: 0, spent: 10 },
    { limit_id: 'lim_twelve', n: 20, reserved: 0, spent: 10 },
  ])
  const { rows } = await raw(url, 'select status, detail from audit_log')
  const numbers = numberedLimits(rows)
    .filter(({ id }) => id === 'lim_ten')
    .map(({ n }) => n)
  t.same(
    numbers,
    Array.from({ length: 20 }, (_, index) => index + 1),
    'one number after the other, across streams',
  )
})

t.test('a batch that counts is two round trips, whoever else counts there', async (t) => {
  const url = await server.migrated()
  const way = await countedWay(t, url)
  const { database, ledger } = await replica(t, way.url)
  const wish = budget('lim_1', 30)
  const unit = (n: number, reservations: readonly MeterReservation[] = [wish]) => ({
    ...{ reservations, statements: [claimOnce(database, hash('sha256', `proof ${n}`), AT)] },
    entries: [
      entry({
        request_id: `req_${n}`,
        detail: { limits: reservations.map((one) => reservedDetail(one, 1)) },
      }),
    ],
  })
  async function turnsOf(count: number, from: number) {
    const before = way.turns()
    const units = Array.from({ length: count }, (_, n) => ledger.commit(unit(from + n)))
    const settled = await Promise.allSettled(units)
    return {
      turns: way.turns() - before,
      stored: settled.filter(({ status }) => status === 'fulfilled').length,
    }
  }
  t.same(await turnsOf(1, 0), { turns: 2, stored: 1 })
  t.same(await turnsOf(20, 1), { turns: 2, stored: 20 })
  const outcome = { ...wish, charged: 2 }
  const before = way.turns()
  await ledger.commit({
    settlements: [outcome],
    entries: [entry({ status: 'success', detail: { limits: [settledDetail(outcome)] } })],
  })
  t.equal(way.turns() - before, 2, 'an outcome too')
  t.same(await turnsOf(30, 30), { turns: 2, stored: 8 }, 'also where some have no room')
  t.equal(
    (await raw(url, 'select count(*)::int as n from single_uses')).rows[0]?.n,
    29,
    'who is refused has claimed nothing',
  )
})

t.test('calls that a dead replica left open are charged what they held, by one of the others', async (t) => {
  const url = await server.migrated()
  const gone = await openDatabase(url)
  const ledger = await openLedger({ database: gone, version: VERSION })
  const atOnce = { ...budget('lim_at_once', 5), span: UNDER_WAY }
  t.equal(await reserve(ledger, 'req_open', [{ ...budget('lim_money', 100), took: 7 }, atOnce]), true)
  await ledger.close()
  await gone.close()
  const others = await Promise.all([replica(t, url), replica(t, url)])
  const looking = new Client(url)
  await looking.connect()
  t.teardown(() => looking.end())
  const found = await Promise.all(
    others.map(async () => {
      const abandoned = new AbandonedStreams('of the other one')
      await abandoned.look(looking, 0)
      return abandoned.look(looking, 60_000)
    }),
  )
  const closed = await Promise.allSettled(
    others.map((other, index) => {
      const [unit = { entries: [] }] = (found[index] ?? []).flatMap((one) =>
        recoveryUnits(one, AT, 'cd'.repeat(32)),
      )
      return other.ledger.commit(unit)
    }),
  )
  t.same(closed.map(({ status }) => status).toSorted(), ['fulfilled', 'rejected'])
  const { rows } = await raw(
    url,
    'select limit_id, n::int, reserved::int, spent::int from limit_meters order by limit_id',
  )
  t.same(rows, [
    { limit_id: 'lim_at_once', n: 2, reserved: 0, spent: 0 },
    { limit_id: 'lim_money', n: 2, reserved: 0, spent: 7 },
  ])
})
