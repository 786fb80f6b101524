import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { compileGlob } from '../../../db/support/glob.ts'
import { callPricing, type EndedCall } from '../../../plugins/prices/cost.ts'
import { priceOptions } from '../../../plugins/prices/options.ts'
import { priceBook } from '../../../plugins/prices/rates.ts'
import { openPriceTable } from '../../../plugins/prices/table.ts'

const builtin = await openPriceTable('builtin', '.')
if (!builtin || 'problems' in builtin) throw new Error('the shipped table is not read')

const book = (options: object, vendors: Readonly<Record<string, string>> = {}) =>
  priceBook(priceOptions.parse(options), {
    table: builtin,
    vendorOf: (provider) => vendors[provider] ?? provider,
    glob: compileGlob,
  })

t.test('docs/costs.md#prices: the file counts before the table, and its first match', (t) => {
  const { priceOf } = book({
    models: [
      { match: 'openai/gpt-5*', input: 1, output: 2 },
      { match: ['openai/gpt-5-mini', 'openai/x'], free: true },
    ],
  })
  t.match(priceOf('openai', 'gpt-5-mini'), { source: 'file', rates: { tokens: { input: 1_000_000 } } })
  t.match(priceOf('openai', 'x'), { source: 'file', isFree: true, rates: {} })
  t.match(priceOf('openai', 'gpt-4o'), { source: 'builtin', rates: { tokens: { input: 2_500_000 } } })
  t.equal(priceOf('local', 'gpt-4o'), null)
  t.end()
})

t.test('docs/costs.md#vendors: a provider of another name says whose prices it has', (t) => {
  const { priceOf } = book({}, { mine: 'anthropic' })
  t.match(priceOf('mine', 'claude-sonnet-4-5-20250929'), {
    rates: { tokens: { input: 3_000_000, cache_write_1h: 6_000_000 }, uses: { web_search: 10_000_000_000 } },
  })
  const priority = priceOf('mine', 'claude-sonnet-4-5')?.rates.factors?.service_tier
  t.same(priority, { batch: 500_000, priority: 1_000_000 }, 'which was paid in advance')
  t.end()
})

t.test('no price is rounded to nothing', (t) => {
  const { priceOf } = book({ models: [{ match: 'a/b', input: 0.0000001, output: 0.1 }] })
  t.match(priceOf('a', 'b'), { rates: { tokens: { input: 1, output: 100_000 } } })
  t.end()
})

t.test('prices that cannot be are refused', (t) => {
  const odd: readonly object[] = [
    ...[-1, Number.NaN, Number.POSITIVE_INFINITY, '1', 1e9].map((input) => ({ input, output: 1 })),
    { input: 1 },
    { free: true, input: 1, output: 1 },
    {},
    { input: 1, output: 1, inputs: 2 },
    { input: 1, output: 1, above: [{ input_over: 9, input: 1 }] },
    { input: 1, output: 1, above: [9, 9].map((over) => ({ input_over: over, input: 1, output: 1 })) },
    { input: 1, output: 1, factors: { speeds: { fast: 2 } } },
    { input: 1, output: 1, factors: { speed: { fast: -2 } } },
  ]
  for (const model of odd)
    t.notOk(priceOptions.safeParse({ models: [{ match: 'a/b', ...model }] }).success, JSON.stringify(model))
  t.notOk(priceOptions.safeParse({ tools: { 'a.b': -1 } }).success)
  t.end()
})

t.test("a table of the operator's is read, and a fault in it has a place", async (t) => {
  const directory = t.testdir()
  writeFileSync(join(directory, 'mine.yaml'), 'models:\n  - { match: a/b, input: 1, output: 2 }\n')
  t.match(await openPriceTable('mine.yaml', directory), {
    source: 'table',
    prices: { models: [{ match: 'a/b' }] },
  })
  writeFileSync(join(directory, 'bad.yaml'), 'models:\n  - { match: a/b, input: -1, output: 2 }\n')
  t.match(await openPriceTable('bad.yaml', directory), {
    problems: [{ file: 'bad.yaml', line: 2, column: 26, message: /input must be at least 0/ }],
  })
  t.match(await openPriceTable('none.yaml', directory), { problems: [{ message: /ENOENT/ }] })
  t.equal(await openPriceTable('none', directory), null)
})

const pricing = callPricing({
  book: book({ models: [{ match: 'a/b', input: 1, output: 2 }], tools: { 'github.*': 0.001 } }),
  modelAt: (_, model) => (model === 'none' ? null : model),
  freePaths: new Set(['/v1/messages/count_tokens']),
})
const call = (detail: object, more: Partial<EndedCall> = {}): EndedCall => ({
  ...{
    action: 'egress_llm_chat',
    path: '/v1/messages',
    model: 'b',
    tool: null,
    inBytes: 400,
    isStream: false,
    status: 'success',
  },
  detail: { attempts: [{ provider: 'a', status: 200 }], ...detail },
  ...more,
})

t.test('docs/costs.md#calls: a tool costs what its name says, if it has run', (t) => {
  const tool = { action: 'mcp_tools_call', model: null, tool: 'github.search' }
  t.match(pricing(call({}, tool))?.cost, { microusd: 1_000, priced: 'stated' })
  t.match(pricing(call({ isError: true }, { ...tool, status: 'error' }))?.cost, { microusd: 1_000 })
  t.equal(pricing(call({}, { ...tool, status: 'error' })), null)
  t.equal(pricing(call({}, { ...tool, tool: 'files.read' })), null)
  t.equal(pricing(call({}, { action: 'mcp_tools_list' })), null)
  t.end()
})

t.test('docs/costs.md#calls: only who may have worked is charged', (t) => {
  const tried = (reason: string, status: number | null) =>
    pricing(call({ attempts: [{ provider: 'a', status, reason }] }))?.cost
  t.match(tried('provider_timeout', null), { microusd: 100, priced: 'estimated' })
  t.match(tried('client_gone', null), { microusd: 100 })
  for (const [reason, status] of [
    ['provider_unreachable', null],
    ['provider_rate_limited', 429],
    ['provider_failed', 500],
    ['provider_failed', 302],
  ] as const)
    t.match(tried(reason, status), { microusd: 0, priced: 'free', price: null })
  const skipped = { provider: 'a', skipped: 'open' }
  const tokens = { input: 10, output: 5 }
  const passed = { attempts: [skipped, { provider: 'a', status: 200 }], tokens }
  t.match(pricing(call(passed))?.cost, { microusd: 20, priced: 'stated' })
  t.equal(pricing(call({ attempts: [] })), null, 'nobody was asked')
  t.match(pricing(call({ tokens }, { model: 'none' }))?.cost, { priced: 'unpriced' })
  t.end()
})

t.test('docs/costs.md#calls: other models that took part are charged, or named', (t) => {
  const tokens = { input: 10, output: 5 }
  const further = [
    { kind: 'advisor', model: 'b', tokens },
    { kind: 'image_generation', tokens },
  ]
  const made = pricing(call({ tokens, further }))
  t.match(made?.cost, { microusd: 40, priced: 'partly', unpriced: ['further.image_generation'] })
  t.equal(made?.stated.size, 1)
  t.end()
})

t.test('a call of a free endpoint is free, whatever became of it', (t) => {
  const free = { path: '/v1/messages/count_tokens' }
  const late = { attempts: [{ provider: 'a', status: null, reason: 'provider_timeout' }] }
  for (const detail of [{}, late])
    t.same(pricing(call(detail, free))?.cost, { microusd: 0, price: null, priced: 'free' })
  t.end()
})

t.test('no number of models that callers name is kept', (t) => {
  const tokens = { input: 10, output: 5 }
  for (let n = 0; n < 5_000; n += 1) pricing(call({ tokens }, { model: `m${n}` }))
  t.match(pricing(call({ tokens }))?.cost, { microusd: 20 })
  t.end()
})
