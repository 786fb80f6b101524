import t from 'tap'
import { usdExact, usdText } from '../../../plugins/prices/usd.ts'
import type { AdminCall } from '../../../scripts/admin/call.ts'
import { verbs } from '../../../scripts/verbs/costs.ts'

const SUMS = {
  ...{ calls: 3, input_tokens: 10, output_tokens: 2, cache_read_tokens: 0, cache_write_tokens: 0 },
  ...{ microusd: 4_200, estimated_calls: 1, estimated_microusd: 200, unpriced_calls: 0 },
}

/** Runs a verb against answers by their paths. */
async function ran(verb: keyof typeof verbs, args: readonly string[], answer: (path: string) => unknown) {
  const [asked, out]: [string[], string[]] = [[], []]
  const call: AdminCall = async (_method, path) => {
    asked.push(path)
    return { status: 200, body: answer(path) }
  }
  const code = await verbs[verb].perform(
    args,
    (_door, work) => work(call),
    (text) => out.push(text),
  )
  return { code, asked, out: out.join('') }
}

t.test('amounts read as exactly as they are known, and nothing spent reads as nothing', (t) => {
  const cases: readonly (readonly [number, string])[] = [
    ...([
      [0, '0 USD'],
      [1, '0.000001 USD'],
      [4_200, '0.0042 USD'],
      [500_000, '0.50 USD'],
    ] as const),
    ...([
      [999_999, '0.999999 USD'],
      [1_000_000, '1.00 USD'],
      [1_234_567_891, '1,234.57 USD'],
    ] as const),
  ]
  for (const [microusd, text] of cases) t.equal(usdText(microusd), text)
  t.equal(usdExact(1_234_567_891), '1234.567891')
  t.equal(usdExact(7), '0.000007')
  t.end()
})

t.test('costs shows the dearest, and says what is estimated', async (t) => {
  const page = {
    ...{ from: '2026-11-01', to: '2026-11-27', by: ['principal', 'model'], uncounted: 0, next_cursor: null },
    rows: [{ principal: 'usr_x', principal_name: 'acme::user::zoe', model: null, ...SUMS }],
    total: SUMS,
  }
  const { out, asked } = await ran('costs', ['--by', 'principal,model', '--from', '2026-11-01'], () => page)
  t.match(out, /acme::user::zoe +- +3 +10 +2 +0\.0042 USD +0\.0002 USD of it estimated/)
  t.match(out, '2026-11-01 to 2026-11-27: 3 calls, 0.0042 USD; 0.0002 USD of it estimated')
  t.same(asked, ['/v1/admin/costs?by=principal%2Cmodel&from=2026-11-01&order=cost&limit=1000'])
  const csv = await ran('costs', ['--csv'], () => 'model,usd\r\na,0.1\r\n')
  t.equal(csv.out, 'model,usd\na,0.1\n')
  t.match(csv.asked, ['/v1/admin/costs?by=provider%2Cmodel&format=csv'])
})

t.test('prices check reads all pages, names what has no price, and exits with 1', async (t) => {
  const pages = (path: string) =>
    path.includes('cursor=two')
      ? { rows: [{ provider: 'openai', model: 'odd', ...SUMS, unpriced_calls: 7 }], next_cursor: null }
      : { rows: [{ provider: 'openai', model: 'gpt', ...SUMS }], next_cursor: 'two' }
  const { code, out, asked } = await ran('prices', ['check'], pages)
  t.equal(code, 1)
  t.equal(asked.length, 2)
  t.match(out, /openai +odd +7\ncalls of the last 30 days without a price: 7\./)
  t.notMatch(out, 'gpt')
  const well = await ran('prices', ['check'], () => ({ rows: [], next_cursor: null }))
  t.match(well, { code: 0, out: 'every call of the last 30 days has a price\n' })
})

t.test('prices show names the entry and the rates, and exits with 1 if there is no price', async (t) => {
  const none = { price: null, entry: null, source: null, free: false, rates: null, window: null }
  const rates = {
    tokens: { input: 5_000_000, output: 30_000_000 },
    above: [{ input_over: 272_000, input: 10_000_000, output: 45_000_000 }],
    uses: { web_search: 10_000_000_000 },
  }
  const one = { provider: 'openai', model: 'gpt-5', price: 'ab', entry: 'gpt-5*', source: 'builtin' }
  const found = (prices: readonly object[]) => () => ({ configured: true, table: 'cd', prices })
  const well = await ran(
    'prices',
    ['show', 'gpt-5'],
    found([{ ...one, free: false, rates, window: 400_000 }]),
  )
  t.match(
    well.out,
    /openai +gpt-5 +gpt-5\* +builtin +input 5, output 30; over 272000 of input: input 10, output 45; web_search 0\.01 a use; takes 400000 tokens\ntable cd/,
  )
  t.match(well, { code: 0, asked: ['/v1/admin/prices?model=gpt-5'] })
  const free = await ran('prices', ['show', 'gpt-5'], found([{ ...one, free: true, rates: {} }]))
  t.match(free, { code: 0, out: 'free' })
  const lacking = await ran('prices', ['show', 'x'], found([{ ...one, ...none }]))
  t.match(lacking, { code: 1, out: 'no price' })
  t.match(await ran('prices', ['show', 'x'], found([])), { code: 1, out: 'no provider has x' })
  const off = await ran('prices', ['show', 'x'], () => ({ configured: false, table: null, prices: [] }))
  t.match(off, { code: 1, out: 'nothing is priced' })
})
