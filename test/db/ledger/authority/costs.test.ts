import fc from 'fast-check'
import t from 'tap'
import {
  type BilledUsage,
  costOf,
  type PriceRates,
  priceIdOf,
} from '../../../../db/ledger/authority/costs.ts'
import { costFault, statedPriceIn } from '../../../../db/ledger/authority/stated-prices.ts'

/** $5, $0.50 cached, $6.25 written, $30; twice as much beyond 272,000. Pico-USD of a token. */
const RATES: PriceRates = {
  tokens: { input: 5_000_000, cached: 500_000, cache_write: 6_250_000, output: 30_000_000 },
  above: [
    {
      input_over: 272_000,
      input: 10_000_000,
      cached: 1_000_000,
      cache_write: 12_500_000,
      output: 45_000_000,
    },
  ],
  uses: { web_search: 10_000_000_000 },
  factors: { service_tier: { flex: 500_000, priority: 2_000_000 }, geo: { us: 1_100_000 } },
}
const microusd = (tokens: unknown, more: BilledUsage = {}): number =>
  costOf(RATES, { tokens, ...more }).microusd

await t.test('each part of the input costs its own rate, and reasoning is part of the output', async (t) => {
  t.equal(microusd({ input: 1_000_000, output: 0 }), 10_000_000, 'dearer: the tier holds for the whole of it')
  t.equal(microusd({ input: 100_000, output: 1_000 }), 530_000)
  t.equal(microusd({ input: 100_000, output: 1_000, reasoning: 900 }), 530_000)
  t.equal(
    microusd({ input: 100_000, output: 0, cache_read: 60_000, cache_write: 30_000 }),
    30_000 + 187_500 + 50_000,
  )
  t.equal(microusd({ input: 272_000, output: 0 }), 1_360_000)
  t.equal(microusd({ input: 272_001, output: 0 }), 2_720_010)
})

await t.test(
  'cache writes cost by their lifetime, and what has no rate of its own as all of them',
  async (t) => {
    const rates: PriceRates = { tokens: { input: 4, cache_write: 5, cache_write_1h: 8, output: 0 } }
    const cost = (tokens: unknown): number => costOf(rates, { tokens }).microusd
    const million = 1_000_000
    t.equal(cost({ input: 3 * million, cache_write: 3 * million, cache_write_1h: million }), 5 + 5 + 8)
    t.equal(cost({ input: million, cache_write_5m: million }), 5)
    t.equal(cost({ input: million, cache_write_12h: million }), 5)
  },
)

await t.test('sound and pictures cost their own rates, where there are any', async (t) => {
  const rates: PriceRates = { tokens: { input: 1, input_audio: 10, output: 2, output_audio: 20 } }
  const million = 1_000_000
  const tokens = { input: 2 * million, input_audio: million, output: 3 * million, output_audio: million }
  t.equal(costOf(rates, { tokens }).microusd, 1 + 10 + 4 + 20)
  t.equal(costOf(rates, { tokens: { input: million, input_image: million } }).microusd, 1)
})

await t.test('what a total counts beyond its parts is output: some leave reasoning out', async (t) => {
  t.equal(microusd({ input: 10, output: 1, total: 111 }), microusd({ input: 10, output: 101 }))
  t.equal(microusd({ total: 100 }), microusd({ input: 100, output: 0 }), 'of an embedding, input')
  t.equal(microusd({ input: 10, output: 5, total: 3 }), microusd({ input: 10, output: 5 }))
})

await t.test('factors multiply tokens, never searches, and a word without one is named', async (t) => {
  const tokens = { input: 1_000, output: 100 }
  t.equal(microusd(tokens), 8_000)
  t.equal(microusd(tokens, { service_tier: 'flex' }), 4_000)
  t.equal(microusd(tokens, { service_tier: 'priority', geo: 'us' }), 17_600)
  t.equal(microusd(tokens, { searches: 2, service_tier: 'flex' }), 24_000)
  t.same(costOf(RATES, { tokens, service_tier: 'default', geo: 'global' }).unpriced, [])
  t.same(costOf(RATES, { tokens, speed: 'fast' }).unpriced, ['speed'])
  t.same(costOf(RATES, { tokens, server_tools: { file_search: 3 } }).unpriced, ['server_tools.file_search'])
  t.same(costOf({ tokens: RATES.tokens ?? {} }, { tokens, searches: 1 }).unpriced, ['searches'])
})

await t.test('counts that do not fit are cut to what fits, and that is said', async (t) => {
  const cut = costOf(RATES, { tokens: { input: 10, output: 0, cache_read: 1_000 } })
  t.same(cut, { microusd: 5, isExact: false, unpriced: [] })
  t.equal(costOf(RATES, { tokens: { input: 10, output: 0, cache_read: 6, cache_write: 6 } }).isExact, false)
  for (const odd of [Number.NaN, -1, 1.5, '7', null, Number.POSITIVE_INFINITY])
    t.same(costOf(RATES, { tokens: { input: odd, output: 1 } }), {
      microusd: 30,
      isExact: false,
      unpriced: [],
    })
  t.same(costOf(RATES, {}), { microusd: 0, isExact: true, unpriced: [] })
  t.equal(costOf(RATES, { tokens: { input: 1e18, output: 1e18 } }).microusd, Number.MAX_SAFE_INTEGER)
})

await t.test('a fraction of a micro-USD is a whole one', async (t) => {
  const rates: PriceRates = { tokens: { input: 1, output: 0 } }
  t.equal(costOf(rates, { tokens: { input: 1, output: 0 } }).microusd, 1)
  t.equal(costOf(rates, { tokens: { input: 0, output: 0 } }).microusd, 0, 'a stated zero is zero')
  t.equal(costOf({ call: 1 }, {}).microusd, 1)
})

const count = fc.nat({ max: 10 ** 12 })
const rate = fc.nat({ max: 10 ** 9 })
const rates = fc.record({ input: rate, cached: rate, cache_write: rate, output: rate }).map(
  (tokens): PriceRates => ({
    tokens,
    above: [
      {
        ...Object.fromEntries(Object.entries(tokens).map(([name, value]) => [name, value * 2])),
        input_over: 1_000,
      },
    ],
    uses: { web_search: 7_000_000_000 },
  }),
)
const parts = fc.record({ plain: count, cached: count, written: count, output: count, searches: count })

await t.test(
  'a cost grows with each count, is never negative, and is nothing only if its counts are',
  async () => {
    const of = (
      price: PriceRates,
      { plain, cached, written, output, searches }: Record<string, number>,
    ): number =>
      costOf(price, {
        tokens: {
          input: (plain ?? 0) + (cached ?? 0) + (written ?? 0),
          cache_read: cached,
          cache_write: written,
          output,
        },
        searches,
      }).microusd
    fc.assert(
      fc.property(
        rates,
        parts,
        fc.constantFrom(...['plain', 'cached', 'written', 'output', 'searches']),
        fc.nat(),
        (price, counts, grown, by) => {
          const before = of(price, counts)
          const after = of(price, { ...counts, [grown]: counts[grown as keyof typeof counts] + by })
          return before >= 0 && after >= before
        },
      ),
    )
    const positive = rates.map(
      (price): PriceRates => ({
        ...price,
        tokens: Object.fromEntries(
          Object.entries(price.tokens ?? {}).map(([name, value]) => [name, value + 1]),
        ),
      }),
    )
    fc.assert(
      fc.property(positive, parts, (price, counts) => {
        const isNothing = Object.values(counts).every((one) => one === 0)
        return (of(price, counts) === 0) === isNothing
      }),
    )
  },
)

await t.test('whatever is stated, a cost is a whole number, and throws for nothing', async () => {
  fc.assert(
    fc.property(rates, fc.object({ maxDepth: 2 }), fc.object({ maxDepth: 1 }), (price, usage, tokens) => {
      const { microusd: cost } = costOf(price, { ...usage, tokens })
      return Number.isSafeInteger(cost) && cost >= 0
    }),
  )
})

const ID = priceIdOf(RATES)
const find = (id: string): PriceRates | undefined => (id === ID ? RATES : undefined)
const OUTCOME = {
  upstream_status: 200,
  tokens: { input: 1_000, output: 100 },
  further: [{ kind: 'advisor', model: 'x', tokens: { input: 1_000, output: 0 } }],
  cost: {
    ...{ microusd: 15_000, price: ID, priced: 'partly', further: [ID] },
    tried: { input: 400, prices: [ID, null] },
  },
}

await t.test('a cost follows from its row and the rates, or is found', async (t) => {
  t.equal(costFault(OUTCOME, find), null)
  t.equal(costFault({ tokens: {} }, find), null, 'rows of before have none')
  const odd = (cost: object, more: object = {}) =>
    costFault({ ...OUTCOME, cost: { ...OUTCOME.cost, ...cost }, ...more }, find)
  t.match(odd({ microusd: 14_999 }), /says a cost of 14999, but its counts and rates make 15000/)
  t.match(odd({}, { tokens: { input: 1_001, output: 100 } }), /make 15005/)
  t.match(odd({}, { further: [{ tokens: { input: 1_002 } }] }), /make 15010/)
  t.match(odd({ tried: { input: 401, prices: [ID] } }), /make 15005/)
  t.match(odd({ estimated: { input: 0, output: 1 } }), /make 15030/)
  t.match(odd({}, { searches: 1 }), /make 25000/)
  t.match(odd({}, { service_tier: 'priority' }), /make 28000/)
  t.match(odd({ price: '0'.repeat(16) }), /names rates that no row before it states/)
  t.match(odd({ priced: 'stated' }), /stated, and is not/)
  t.match(odd({ priced: 'cheap' }), /not formed/)
  t.match(odd({ price: null, priced: 'free' }), /free/)
  t.match(costFault({ cost: 7 }, find), /not formed/)
})

await t.test('a cost that was held is what a limit was charged for a call whose process died', (t) => {
  const cost = { microusd: 7, price: null, priced: 'reserved' }
  const died = { reason: 'crash', limits: [{ charged: 1 }, { charged: 7 }], cost }
  t.equal(costFault(died, find), null)
  for (const odd of [{ limits: [{ charged: 8 }] }, { limits: undefined }, { reason: undefined }])
    t.match(costFault({ ...died, ...odd }, find), /no limit was charged it/)
  t.end()
})

await t.test('rates are named by what they are: other rates are other prices', async (t) => {
  t.same(statedPriceIn({ price: ID, rates: RATES }), { price: ID, rates: RATES })
  const dearer = { ...RATES, tokens: { ...RATES.tokens, input: 5_000_001 } }
  t.equal(statedPriceIn({ price: ID, rates: dearer }), null)
  for (const odd of [
    null,
    [],
    { tokens: { input: -1 } },
    { tokens: { inputs: 1 } },
    { cheap: 1 },
    { call: 0.5 },
  ])
    t.equal(statedPriceIn({ price: ID, rates: odd }), null)
})
