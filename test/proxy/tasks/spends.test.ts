import t, { type Test } from 'tap'
import type { Database } from '../../../db/database.ts'
import { openDatabase } from '../../../db/engine.ts'
import {
  MAX_DAY_MODELS,
  MAX_SPEND_DAYS,
  OTHER_MODELS,
  type SpendQuestion,
} from '../../../db/ledger/counts/spend-counts.ts'
import type { LedgerEntry } from '../../../db/ledger/record/entry.ts'
import { type Ledger, openLedger } from '../../../db/ledger/record/ledger.ts'
import { countRows } from '../../../proxy/tasks/count-rows.ts'
import { keptSpends, type SpentCall, spendsOfRows, spentEntries } from '../../support/db/counts.ts'
import { databaseUrl } from '../../support/db/engine.ts'
import { allRows } from '../../support/db/history.ts'
import { entry } from '../../support/db/scratch-ledger.ts'
import { eventually } from '../../support/settled.ts'

t.setTimeout(120_000)

const DAY_MS = 86_400_000
const NEVER = new AbortController().signal

interface Spending {
  readonly database: Database
  readonly ledger: Ledger
}

async function spending(t: Test): Promise<Spending> {
  const database = await openDatabase(await databaseUrl(t.testdir()))
  const ledger = await openLedger({ database, version: '0.6.4' })
  t.teardown(async () => {
    await ledger.close()
    await database.close()
  })
  return { database, ledger }
}

async function countAll({ database, ledger }: Spending, now: number): Promise<void> {
  const task = countRows({ database, ledger, clock: () => now })
  const last = await database.rowCounts.last()
  await eventually(
    async () => {
      await task.run()
      return database.rowCounts.counted()
    },
    (place) => place >= last,
    30_000,
  )
  await task.stop()
}

async function isExact(t: Test, { database }: Pick<Spending, 'database'>): Promise<void> {
  const rows = []
  for await (const row of allRows(database)) if (!('damaged' in row)) rows.push(row)
  t.same(await keptSpends(database), spendsOfRows(rows))
}

const grouped = ({ database }: Spending, asked: Partial<SpendQuestion>) =>
  database.rowCounts.spends(
    { ...{ by: ['day'], from: '0000', to: '9999', order: 'key', most: 1_000 }, ...asked },
    NEVER,
  )

const PRICED = ['stated', 'estimated', 'partly', 'reserved', 'free', 'unpriced']

/** Calls of all kinds, over the end of February of a leap year and of one that is none, and of a year. */
const VARIED = ['2028-02-28T23:00:00Z', '2027-02-28T23:00:00Z', '2027-12-31T23:00:00Z'].flatMap(
  (from, year) =>
    Array.from({ length: 240 }, (_, n): SpentCall => {
      const at = Date.parse(from) + n * 12 * 60_000
      const priced = PRICED[n % PRICED.length] ?? ''
      return {
        ...{ id: `req_${year}_${n}`, at, endedAt: at + (n % 7) * 20 * 60_000 },
        cost: { microusd: priced === 'free' || priced === 'unpriced' ? 0 : n * 1_000_003 + 1, priced },
        tokens: { input: n * 100, output: n, cache_read: n % 40, ...(n % 3 === 0 && { cache_write: 7 }) },
        names: {
          principal_id: `acme::bot-${n % 5}`,
          ...(n % 11 === 0
            ? { action: 'mcp_tools_call', tool: 'github.search', model: null, provider: null }
            : { provider: n % 2 ? 'openai' : 'anthropic', model: `model-${n % 4}` }),
        },
      }
    }),
)

await t.test(
  'spends are those of the rows to the micro-USD, in portions, over month ends and leap days',
  async (t) => {
    const of = await spending(t)
    // Decisions first: their outcomes are counted in later portions.
    const pairs = VARIED.map(spentEntries)
    const entries: LedgerEntry[] = [
      ...pairs.map(([decision]) => decision),
      ...pairs.map(([, outcome]) => outcome),
    ]
    entries.push(entry({ request_id: 'req_before', status: 'success', detail: { tokens: { input: 5 } } }))
    for (let from = 0; from < entries.length; from += 400)
      await of.ledger.commit({ entries: entries.slice(from, from + 400) })
    await countAll(of, Date.parse('2028-03-01'))
    await isExact(t, of)
    const { groups, total, uncounted } = await grouped(of, { by: ['day'] })
    t.match(
      groups.map(({ day }) => day),
      [
        '2027-02-28',
        '2027-03-01',
        '2027-03-02',
        '2027-12-31',
        '2028-01-01',
        '2028-01-02',
        '2028-02-28',
        '2028-02-29',
      ],
    )
    t.match(
      groups.map(({ calls }) => calls).slice(0, 3),
      [5, 120, 115],
      'a call is of the day in which it came',
    )
    t.equal(total.calls, VARIED.length, 'a row without a cost is none of them')
    t.equal(total.unpriced_calls, VARIED.length / PRICED.length)
    t.equal(total.estimated_calls, VARIED.length / 2)
    t.equal(uncounted, 0)
    const before = await keptSpends(of.database)
    await countAll(of, Date.parse('2028-03-01'))
    t.same(await keptSpends(of.database), before, 'and nothing where no row has come')
  },
)

await t.test('groups add up to the total, page by page, by key and the dearest first', async (t) => {
  const of = await spending(t)
  for (let from = 0; from < VARIED.length; from += 200)
    await of.ledger.commit({ entries: VARIED.slice(from, from + 200).flatMap(spentEntries) })
  await countAll(of, Date.parse('2028-03-01'))
  const by = ['principal', 'model'] as const
  const whole = await grouped(of, { by })
  t.equal(
    whole.groups.reduce((sum, { microusd }) => sum + microusd, 0),
    whole.total.microusd,
  )
  const pages = []
  for (let after: readonly string[] | undefined; ; ) {
    const page = await grouped(of, { by, most: 7, ...(after && { after }) })
    pages.push(...page.groups)
    t.same(page.total, whole.total, 'each page says the total of all')
    if (!page.more) break
    const last = page.groups.at(-1)
    after = [last?.principal ?? '', last?.model ?? '']
  }
  t.same(pages, whole.groups)
  const dearest = await grouped(of, { by, order: 'cost', most: 3 })
  t.same(
    dearest.groups.map(({ microusd }) => microusd),
    whole.groups
      .map(({ microusd }) => microusd)
      .toSorted((one, other) => other - one)
      .slice(0, 3),
  )
  t.equal(dearest.more, true)
  const own = await grouped(of, {
    by: ['principal'],
    principal: 'acme::bot-3',
    from: '2027-03-01',
    to: '2027-03-01',
  })
  t.match(own.groups, [{ principal: 'acme::bot-3', calls: 24 }])
  t.match(await grouped(of, { from: '2026-01-01', to: '2026-01-31' }), {
    groups: [],
    total: { calls: 0, microusd: 0 },
  })
})

await t.test('a window says how many rows are not counted yet', async (t) => {
  const of = await spending(t)
  await of.ledger.commit({ entries: VARIED.slice(0, 3).flatMap(spentEntries) })
  t.match(await grouped(of, {}), { groups: [], uncounted: 6 })
})

await t.test('spends go after 400 days, in portions, and those of the last 400 days stay', async (t) => {
  const of = await spending(t)
  const now = Date.parse('2028-02-29T00:00:00Z')
  const days = [0, 1, MAX_SPEND_DAYS - 1, MAX_SPEND_DAYS, MAX_SPEND_DAYS + 1, 1_000]
  const calls = days.map((days) => ({
    ...{ id: `req_${days}`, at: now - days * DAY_MS, cost: { microusd: 1, priced: 'stated' } },
  }))
  const old = Array.from({ length: 1_100 }, (_, n) => ({
    ...{ id: `req_old_${n}`, at: now - 900 * DAY_MS, cost: { microusd: 1, priced: 'stated' } },
    names: { principal_id: `acme::bot-${n}` },
  }))
  await of.ledger.commit({ entries: calls.flatMap(spentEntries) })
  for (let from = 0; from < old.length; from += 250)
    await of.ledger.commit({ entries: old.slice(from, from + 250).flatMap(spentEntries) })
  await countAll(of, now)
  const { groups } = await grouped(of, {})
  t.same(
    groups.map(({ day }) => day),
    [MAX_SPEND_DAYS - 1, 1, 0].map((days) => new Date(now - days * DAY_MS).toISOString().slice(0, 10)),
  )
})

await t.test(
  'names that a caller makes up are counted together once they are many, and nothing is lost',
  async (t) => {
    const of = await spending(t)
    const calls = Array.from(
      { length: 3_000 },
      (_, n): SpentCall => ({
        ...{
          id: `req_${n}`,
          at: Date.parse('2028-02-29T12:00:00Z'),
          cost: { microusd: n, priced: 'stated' },
        },
        names: { model: `made-up-${n}`, principal_id: n % 10 === 0 ? 'acme::other' : 'acme::bot' },
      }),
    )
    for (let from = 0; from < calls.length; from += 250)
      await of.ledger.commit({ entries: calls.slice(from, from + 250).flatMap(spentEntries) })
    await countAll(of, Date.parse('2028-02-29T12:00:00Z'))
    const { groups, total } = await grouped(of, { by: ['principal', 'model'] })
    t.equal(total.microusd, (2_999 * 3_000) / 2)
    t.equal(total.calls, 3_000)
    for (const principal of ['acme::bot', 'acme::other']) {
      const models = groups.filter((one) => one.principal === principal)
      t.ok(models.length <= 2 * MAX_DAY_MODELS + 1, `${principal}: ${models.length} models`)
      t.ok(models.some(({ model }) => model === OTHER_MODELS))
    }
  },
)

await t.test('rows whose cost is none, or more than anybody can spend, stop no counting', async (t) => {
  const of = await spending(t)
  const costs = [
    ...[
      {},
      { microusd: -5, priced: 'stated' },
      { microusd: 'x', priced: 'stated' },
      { microusd: 7, priced: 'odd' },
    ],
    ...[{ microusd: Number.MAX_SAFE_INTEGER, priced: 'stated' }],
  ]
  const calls = costs.map((cost, n) => ({ id: `req_${n}`, at: Date.parse('2028-02-29'), cost }))
  await of.ledger.commit({ entries: calls.flatMap(spentEntries) })
  await of.ledger.commit({
    entries: [entry({ status: 'success', detail: { error_code: '"cost":{', cost: 'none' } })],
  })
  await countAll(of, Date.parse('2028-02-29'))
  const { total } = await grouped(of, {})
  t.match(total, { calls: 5, microusd: 1_000_000_000_007, unpriced_calls: 2 })
})
