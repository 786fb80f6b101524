import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { isObject } from '../../../db/support/json.ts'
import { CHAT, type Identity, sharedGateway, type TestGateway, testGateway } from '../../support/gateway.ts'
import { rawConnect, requestBytes } from '../../support/raw.ts'

// What budgets of other gateways have let through or refused, as users of theirs have reported it, and what ours
// promise: each with the test that shows it, here or elsewhere.

const SHOWN_BY: readonly (readonly [what: string, file: string, test: string])[] = [
  ['calls at once passed between check and count', 'proxy/limits/limits', 'of 200 calls at once'],
  ['new users and administrators were counted by nobody', HERE(), 'whoever is enrolled later'],
  ['stale numbers refused calls that fitted', 'proxy/limits/limits', 'a limit holds for the next call'],
  ['the largest answer was held, and budgets choked', HERE(), 'a call that may be answered at length'],
  ['what cancelled calls held stayed held', HERE(), 'who hangs up after the first byte'],
  ['dearer tiers and cache writes were not held', HERE(), 'a strict budget holds the dearest'],
  ['a model without a price was without limit', 'proxy/limits/limits', 'a model without a price is refused'],
  ['who hung up paid nothing', 'proxy/llm/costs', 'who hangs up pays what was stated'],
  ['a stated zero read as unstated', HERE(), 'a stated nothing is charged as nothing'],
  ['streams counted as nothing', 'proxy/llm/costs', 'an answer that states nothing is estimated'],
  ['other endpoints were not counted', HERE(), 'each endpoint counts on one limit'],
  ['each replica had the whole amount', 'proxy/replicas-limits', 'exactly ten pass over two gateways'],
  ['each call began the window again', 'db/ledger/meters/meter-book', 'a window is of the UTC calendar'],
  ['context outside of the body was not held', HERE(), 'a strict budget holds the dearest'],
  ['clients tried a used-up budget all day', 'clients/any-model', 'stops at once at a budget'],
  // The promises.
  ['strict: held and spent stay within the amount', 'db/ledger/meters/meter-book', 'never passes'],
  ['else it is passed by what calls under way cost more', 'db/ledger/meters/meter-book', 'never passes'],
  ['nothing is held when all calls have ended', 'db/ledger/meters/metered', 'a dead process left open'],
  ['nor after a replica has died', 'db/postgres/meters', 'a dead replica left open'],
  ['the meter is the sum of rows and of spends', HERE(), 'the meter, the rows and the sums of costs'],
  ['refused only if it would not have fitted', 'db/ledger/metered/recompute-limits', 'honest meters agree'],
  ['exactly ten of 200, over processes on one port', 'cluster/limits', 'exactly ten pass'],
  ['exactly ten of 200, over replicas', 'db/postgres/meters', 'exactly ten pass, over three replicas'],
  [
    'a steady rate holds in any interval',
    'db/ledger/meters/meter-book',
    'a steady rate lets through at most',
  ],
  ['a call is of the window in which it arrived', 'db/ledger/meters/meter-book', 'the last ms of it belongs'],
  ['a change holds for the next decision', 'proxy/replicas-limits', 'made at the other'],
  [
    'what is rehearsed is what then happens',
    'db/rehearsal/limits',
    'what a rehearsal says of a limit is what then',
  ],
  ['an alert changes no byte of an answer', HERE(), 'changes no byte of any answer'],
  ['at once: an eleventh never is under way', 'db/ledger/meters/metered', 'an eleventh never is'],
  [
    'a caller below its rate is never refused',
    'db/ledger/meters/meter-book',
    'at nine tenths of a steady rate',
  ],
  [
    'each changed number is found, by both verifiers',
    'db/ledger/metered/recompute-limits',
    'is found, by both',
  ],
  ['strict, on the engine: after every commit', 'db/ledger/meters/metered', 'after each commit'],
  ['a cost grows with each count', 'db/ledger/authority/costs', 'a cost grows with each count'],
  ['a flood over a limit would fill the ledger', HERE(), 'a flood of calls over a limit is summarised'],
  // Input that nobody should send.
  ['a price below nothing', 'plugins/prices/prices', 'prices that cannot be are refused'],
  ['a limit for a model that nobody serves', HERE(), 'a limit for a model that there is not'],
  ['a month that ends', 'plugins/limits/headers', 'February is short'],
  ['a clock that steps back', 'db/ledger/meters/meter-book', 'a clock that steps back gives no part'],
  ['more cached than read', 'db/ledger/authority/costs', 'counts that do not fit are cut'],
  ['no counts at all', 'proxy/limits/limits', 'is charged if the provider states nothing'],
  ['counts that are none', HERE(), 'counts that are none as what was held'],
  ['more tokens than there are', HERE(), 'states more than anybody can use'],
  ['a caller who hangs up', HERE(), 'who hangs up after the first byte'],
  ['an outcome that never comes', 'db/ledger/meters/metered', 'charged what they held, once'],
]

function HERE(): string {
  return 'proxy/limits/reports'
}

t.test('each report and each promise has a test that shows it', (t) => {
  for (const [what, file, test] of SHOWN_BY) {
    const text = readFileSync(join(import.meta.dirname, '../..', `${file}.test.ts`), 'utf8')
    // Here the table itself has each name too.
    const tests = file === HERE() ? (text.split('// Tests.').at(-1) ?? '') : text
    t.ok(tests.includes(test), `${what}: ${file} has "${test}"`)
  }
  t.end()
})

// Tests.

const limit = async (gateway: TestGateway, body: object): Promise<string> => {
  const { status, json } = await gateway.admin('POST', '/v1/admin/limits', body)
  if (status !== 201) throw new Error(`the limit was answered ${status} ${JSON.stringify(json)}`)
  return json.limit_id
}

const chat = (gateway: TestGateway, who: Identity, more: object = {}) =>
  gateway.call(who, 'POST', '/v1/chat/completions', { body: { ...CHAT, ...more } })

/** The meter once nothing is held of it any more. */
async function settled(gateway: TestGateway, id: string) {
  for (;;) {
    const [meter] = (await gateway.admin('GET', `/v1/admin/limits/${id}/usage`)).json.meters
    if (meter?.used === meter?.spent) return meter?.spent ?? 0
    await nextTurn()
  }
}

const answering = (gateway: TestGateway, usage: object): void => {
  gateway.upstream.answer = (response) =>
    void response
      .setHeader('content-type', 'application/json')
      .end(JSON.stringify({ model: 'gpt-test', choices: [], usage }))
}

t.test('whoever is enrolled later is counted from its first call, whatever it holds', async (t) => {
  const gateway = await testGateway(t)
  await limit(gateway, { name: 'all', each: true, measure: 'calls', per: 'ever', amount: 1 })
  const late = await gateway.enroll('late', ['llm.chat', 'team.new', 'team.leads'])
  t.same([(await chat(gateway, late)).status, (await chat(gateway, late)).status], [200, 429])
})

t.test('a flood of calls over a limit is summarised, and each is refused', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('flood', ['llm.chat', 'team.flood'])
  await limit(gateway, {
    ...{ name: 'flood', for: { holding: 'team.flood' }, measure: 'calls', per: 'ever', amount: 1 },
  })
  t.equal((await chat(gateway, bot)).status, 200)
  for (let n = 0; n < 130; n += 1) t.equal((await chat(gateway, bot)).status, 429)
  const own = await gateway.rows({ status: 'denied', principal: bot.id, limit: 1_000 })
  // A minute may end meanwhile.
  t.ok(own.length >= 60 && own.length <= 121, `${own.length} rows of their own`)
})

t.test('a call that may be answered at length holds a moderate answer, not the longest', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('long', ['llm.chat', 'team.long'])
  const id = await limit(gateway, {
    ...{ name: 'long', for: { holding: 'team.long' }, measure: 'tokens', per: 'day', amount: 10_000 },
  })
  answering(gateway, { prompt_tokens: 7, completion_tokens: 5 })
  t.equal((await chat(gateway, bot, { max_tokens: 64_000 })).status, 200)
  t.equal(await settled(gateway, id), 12)
})

t.test('a stated nothing is charged as nothing, and counts that are none as what was held', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('zero', ['llm.chat', 'team.zero'])
  const id = await limit(gateway, {
    ...{ name: 'zero', for: { holding: 'team.zero' }, measure: 'tokens', per: 'day', amount: 1_000_000 },
  })
  answering(gateway, { prompt_tokens: 0, completion_tokens: 0 })
  t.equal((await chat(gateway, bot)).status, 200)
  t.equal(await settled(gateway, id), 0)
  for (const count of ['NaN', null, -5, 1.5]) {
    const before = await settled(gateway, id)
    answering(gateway, { prompt_tokens: count, completion_tokens: count })
    t.equal((await chat(gateway, bot, { max_tokens: 100 })).status, 200)
    const charged = (await settled(gateway, id)) - before
    t.ok(charged > 0 && charged < 1_000, `${count} is charged as ${charged}`)
  }
})

t.test(
  'a provider that states more than anybody can use is charged it, and the meter stays a number',
  async (t) => {
    const gateway = await sharedGateway(t)
    const bot = await gateway.enroll('huge', ['llm.chat', 'team.huge'])
    const id = await limit(gateway, {
      ...{ name: 'huge', for: { holding: 'team.huge' }, measure: 'tokens', per: 'day', amount: 1_000_000 },
    })
    answering(gateway, { prompt_tokens: 1e18, completion_tokens: 1 })
    t.equal((await chat(gateway, bot)).status, 200)
    const spent = await settled(gateway, id)
    t.ok(Number.isSafeInteger(spent) && spent > 0, String(spent))
    t.ok([200, 429].includes((await chat(gateway, bot)).status))
  },
)

/** The members that no two answers share. */
const OF_ONE_ANSWER = ['audit-receipt', 'date', 'request-id']

t.test('a limit that only alerts changes no byte of any answer', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('alerted', ['llm.chat', 'team.alerted'])
  const one = { ...{ model: 'gpt-test', choices: [] }, usage: { prompt_tokens: 7, completion_tokens: 5 } }
  const stream = `data: ${JSON.stringify(one)}\n\ndata: [DONE]\n\n`
  const answers = async () => {
    answering(gateway, one.usage)
    const whole = await chat(gateway, bot)
    gateway.upstream.answer = (response) =>
      void response.setHeader('content-type', 'text/event-stream').end(stream)
    const streamed = await chat(gateway, bot, { stream: true })
    const refused = await chat(gateway, bot, { model: 7 })
    return [whole, streamed, refused].map(({ status, text, headers }) => {
      const { 'x-request-id': id, ...others } = headers
      const rest = Object.entries(others).filter(([name]) => !OF_ONE_ANSWER.includes(name))
      return { status, text: text.replaceAll(String(id), ''), headers: rest }
    })
  }
  const before = await answers()
  for (const measure of ['tokens', 'calls'])
    await limit(gateway, {
      ...{ name: `alerted-${measure}`, for: { holding: 'team.alerted' }, on: 'alert', show: false },
      ...{ measure, per: 'day', amount: 1 },
    })
  t.same(await answers(), before)
  t.same(await answers(), before, 'nor when it is used up')
})

t.test('a limit for a model that there is not holds nobody up', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('modelless', ['llm.chat', 'team.modelless'])
  await limit(gateway, {
    ...{ name: 'modelless', for: { holding: 'team.modelless', models: ['openai/no-such-*', 'nobody/*'] } },
    ...{ measure: 'calls', per: 'ever', amount: 0 },
  })
  answering(gateway, {})
  t.equal((await chat(gateway, bot)).status, 200)
  t.equal((await chat(gateway, bot, { model: 'no-such-model' })).status, 429, 'once it is called, it holds')
})

t.test('each endpoint counts on one limit, by whatever API', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('wide', ['llm.chat', 'team.wide'])
  const id = await limit(gateway, {
    ...{ name: 'wide', for: { holding: 'team.wide' }, measure: 'calls', per: 'ever', amount: 3 },
  })
  gateway.upstream.answer = (response) =>
    void response.setHeader('content-type', 'application/json').end('{"data":[]}')
  const call = (path: string, body: object) => gateway.call(bot, 'POST', path, { body })
  const statuses = [
    await call('/v1/embeddings', { model: 'gpt-embed', input: 'x' }),
    await call('/v1/messages', { model: 'claude-x', max_tokens: 9, messages: [] }),
    await call('/v1/responses', { model: 'gpt-test', input: 'x' }),
  ].map(({ status }) => status)
  t.same(statuses, [200, 200, 200])
  t.equal(await settled(gateway, id), 3)
  t.equal((await chat(gateway, bot)).status, 429)
})

t.test('who hangs up after the first byte leaves nothing held, and pays', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('gone', ['llm.chat', 'team.gone'])
  const holding = 'team.gone'
  const tokens = { name: 'gone', for: { holding }, measure: 'tokens', per: 'day', amount: 1_000_000 }
  const [id, atOnce] = [
    await limit(gateway, tokens),
    await limit(gateway, { name: 'gone-now', for: { holding }, measure: 'concurrent', amount: 1 }),
  ]
  gateway.upstream.answer = (response) =>
    void response.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: {"choices":[]}\n\n')
  const connection = await rawConnect(t, gateway, bot)
  const body = JSON.stringify({ ...CHAT, stream: true, max_tokens: 100 })
  connection.send(requestBytes('POST', '/v1/chat/completions', [], body))
  await connection.until('choices')
  connection.socket.destroy()
  t.ok((await settled(gateway, id)) > 0, 'what it held is charged')
  t.equal(await settled(gateway, atOnce), 0)
  answering(gateway, {})
  t.equal((await chat(gateway, bot)).status, 200, 'its place is free')
})

const PRICES = `plugin: prices
table: none
models:
  - match: "openai/gpt-*"
    input: 1
    cache_write: 10
    output: 2
    above: [{ input_over: 1000, input: 2, cache_write: 20, output: 4 }]
    window: 200000
  - match: "openai/old"
    input: 1
    output: 2
factors: { service_tier: { priority: 3 } }
`

t.test('a strict budget holds the dearest that a call may cost, and refuses what has no bound', async (t) => {
  const gateway = await testGateway(t, { files: { '55-prices.yaml': PRICES } })
  const bot = await gateway.enroll('bot', ['llm.chat', 'team.strict', 'team.loose'])
  const strict = { measure: 'cost', per: 'ever', strict: true }
  const id = await limit(gateway, { name: 'strict', ...strict, amount: 10_000_000 })
  answering(gateway, { prompt_tokens: 10, completion_tokens: 5 })
  const heldOf = async (more: object): Promise<number> => {
    t.equal((await chat(gateway, bot, { max_tokens: 100, ...more })).status, 200)
    const [allowed] = (await gateway.rows()).filter(({ status }) => status === 'allowed').slice(-1)
    t.match(allowed?.detail.limits, [{ took: allowed?.detail.held_microusd }])
    return Number(allowed?.detail.held_microusd)
  }
  const bytes = (more: object) => JSON.stringify({ ...CHAT, max_tokens: 100, ...more }).length
  t.equal(
    await heldOf({}),
    bytes({}) * 20 + 100 * 4,
    'each byte a token, written to the cache in the dearer tier',
  )
  t.equal(await heldOf({ n: 2 }), bytes({ n: 2 }) * 20 + 200 * 4)
  const priority = { service_tier: 'priority' }
  t.equal(await heldOf(priority), 3 * (bytes(priority) * 20 + 100 * 4))
  for (const [member, value] of [
    ['tools', [{ type: 'web_search' }]],
    ['mcp_servers', []],
  ] as const) {
    const refused = await chat(gateway, bot, { max_tokens: 100, [member]: value })
    t.match(refused.json, { reason: 'limit_unbounded', message: new RegExp(`its ${member} brings in`) })
  }
  const file = {
    messages: [
      { role: 'user', content: [{ type: 'file', file: { file_data: 'data:application/pdf;base64,AA' } }] },
    ],
  }
  const link = { messages: [{ role: 'user', content: [{ image_url: { url: 'https://a.example/b' } }] }] }
  const picture = {
    messages: [{ role: 'user', content: [{ image_url: { url: 'data:image/png;base64,A' } }] }],
  }
  t.equal(await heldOf(link), 200_000 * 20 + 100 * 4, 'a link counts as all that the model can take')
  t.equal(await heldOf(picture), (bytes(picture) + 50_000) * 20 + 100 * 4)
  for (const [member, body] of [
    ['messages\\[0\\].content\\[0\\].file.file_data', file],
    ['messages\\[0\\].content\\[0\\].image_url.url', link],
  ] as const) {
    const refused = await chat(gateway, bot, { max_tokens: 100, ...body, model: 'openai/old' })
    const message = new RegExp(`its ${member} brings in has no bound: no price states the window`)
    t.match(refused.json, { reason: 'limit_unbounded', message })
  }
  await settled(gateway, id)
  const embedded = { model: 'gpt-embed', input: 'x' }
  t.equal(
    (await gateway.call(bot, 'POST', '/v1/embeddings', { body: embedded })).status,
    200,
    'it reads alone',
  )
  await settled(gateway, id)
})

t.test('what costs nothing holds nothing', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('free', ['llm.chat', 'team.free'])
  const id = await limit(gateway, {
    ...{
      name: 'free',
      for: { holding: 'team.free' },
      measure: 'tokens',
      per: 'day',
      amount: 1,
      strict: true,
    },
  })
  answering(gateway, {})
  const counted = { model: 'claude-x', messages: [{ role: 'user', content: 'how many are these?' }] }
  const { status } = await gateway.call(bot, 'POST', '/v1/messages/count_tokens', { body: counted })
  t.equal(status, 200)
  t.equal(await settled(gateway, id), 0)
})

t.test('the meter, the rows and the sums of costs say the same', async (t) => {
  const gateway = await testGateway(t, { files: { '55-prices.yaml': PRICES } })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const id = await limit(gateway, { name: 'money', measure: 'cost', per: 'month', amount: 1_000_000_000 })
  for (const [input, output] of [
    [1, 0],
    [0, 1],
    [999, 3],
    [1_001, 7],
  ] as const) {
    answering(gateway, { prompt_tokens: input, completion_tokens: output })
    t.equal((await chat(gateway, bot)).status, 200)
  }
  const spent = await settled(gateway, id)
  const rows = (await gateway.rows({ action: 'egress_llm_chat' })).filter(
    ({ status }) => status === 'success',
  )
  const charged = rows.map(({ detail: { limits } }) =>
    Array.isArray(limits) && isObject(limits[0]) ? Number(limits[0].charged) : Number.NaN,
  )
  const costs = rows.map(({ detail: { cost } }) => (isObject(cost) ? Number(cost.microusd) : Number.NaN))
  const sum = (counts: readonly number[]): number => counts.reduce((all, one) => all + one, 0)
  t.same([sum(charged), sum(costs)], [spent, spent])
  let counted = 0
  while (counted !== spent) counted = (await gateway.admin('GET', '/v1/admin/costs')).json.total.microusd
  t.equal(counted, spent)
})
