import { readFileSync } from 'node:fs'
import t from 'tap'
import { matchesOf, priceTable } from '../../plugins/prices/options.ts'
import { changedPrices, globsOf, TABLE_FILE, tableText, vendorModels } from '../../scripts/make-prices.ts'

const text = readFileSync(TABLE_FILE, 'utf8')
const table = priceTable.parse(JSON.parse(text))

t.test('the shipped table is as make prices writes it, and short', (t) => {
  t.equal(tableText(table), text)
  t.ok(text.length < 200_000)
  t.ok(table.models.flatMap(matchesOf).every((match) => /^[a-z0-9-]+\/./.test(match)))
  t.end()
})

t.test('names of a model become patterns, or it is left out', (t) => {
  t.same(globsOf({ or: [{ equals: 'a' }, { starts_with: 'b' }, { contains: 'c' }, { ends_with: 'd' }] }), [
    ...['a', 'b*', '*c*', '*d'],
  ])
  t.same(globsOf({ regex: '^a-1\\.5-\\d{8}$' }), ['a-1.5-*'])
  t.same(globsOf({ and: [{ starts_with: 'a' }, { contains: 'b' }] }), ['a*b*'])
  t.equal(globsOf({ regex: '^a(?:b|c)$' }), null)
  t.end()
})

t.test('of prices by date and hour, those of today and the dearest of the day count', (t) => {
  const model = {
    id: 'm',
    match: { equals: 'm' },
    prices: [
      { prices: { input_mtok: 9, output_mtok: 9 } },
      {
        constraint: { type: 'start_date' as const, start_date: '2026-01-01' },
        prices: { input_mtok: 1, output_mtok: 2 },
      },
      {
        constraint: { type: 'start_date' as const, start_date: '2027-01-01' },
        prices: { input_mtok: 7, output_mtok: 7 },
      },
      {
        constraint: { type: 'time_of_date' as const, start_time: '01:00:00Z', end_time: '04:00:00Z' },
        prices: { input_mtok: 2, output_mtok: 1 },
      },
    ],
  }
  const left: string[] = []
  t.same(vendorModels('v', [model], '2026-06-01', left), [{ match: 'v/m', input: 2, output: 2 }])
  t.same(left, [])
  t.end()
})

t.test('what has changed is printed, pattern by pattern', (t) => {
  const of = (input: number) => priceTable.parse({ models: [{ match: ['a/b', 'a/c'], input, output: 1 }] })
  t.same(changedPrices(of(1), of(1)), [])
  t.same(changedPrices(of(1), of(2)), [
    'a/b: {"input":1,"output":1} → {"input":2,"output":1}',
    'a/c: {"input":1,"output":1} → {"input":2,"output":1}',
  ])
  t.end()
})
