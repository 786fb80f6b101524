import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { CHAT, type Identity, sharedGateway, type TestGateway, testGateway } from '../../support/gateway.ts'
import { exactlyTen } from '../../support/limits/at-once.ts'

type NewLimit = Readonly<Record<string, unknown>>

const CALLS = { measure: 'calls', per: 'month', amount: 10 }

async function limit(gateway: TestGateway, body: NewLimit): Promise<string> {
  const { status, json } = await gateway.admin('POST', '/v1/admin/limits', body)
  if (status !== 201) throw new Error(`the limit was answered ${status} ${JSON.stringify(json)}`)
  return json.limit_id
}

const chat = (gateway: TestGateway, who: Identity, body: object = CHAT) =>
  gateway.call(who, 'POST', '/v1/chat/completions', { body })

t.test(
  'a limit holds for the next call, refuses the one that has no room, and says until when',
  async (t) => {
    const gateway = await sharedGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat', 'team.red'])
    const other = await gateway.enroll('other', ['llm.chat'])
    t.equal((await chat(gateway, bot)).status, 200, 'before there is one')
    const id = await limit(gateway, { name: 'red-calls', for: { holding: 'team.red' }, ...CALLS, amount: 2 })
    t.equal((await chat(gateway, bot)).status, 200)
    t.equal((await chat(gateway, bot)).status, 200)
    const refused = await chat(gateway, bot)
    t.equal(refused.status, 429)
    t.match(refused.json, {
      error: { type: 'rate_limit_error', code: 'limit_reached' },
      reason: 'limit_reached',
      detail: { limit: 'red-calls', measure: 'calls', amount: 2, spent: 2, reserved: 0 },
    })
    t.match(
      refused.json.message,
      /^red-calls is used up: 2 calls of 2 calls\. It begins again on \d{4}-\d\d-01T00:00:00\.000Z\.$/,
    )
    t.ok(Number(refused.headers['retry-after']) >= 1)
    t.equal((await chat(gateway, other)).status, 200, 'who does not hold the capability is not counted')

    const more = await gateway.admin('PATCH', `/v1/admin/limits/${id}`, { amount: 3 })
    t.match(more.json, { amount: 3, name: 'red-calls' })
    t.equal((await chat(gateway, bot)).status, 200, 'a raised amount too')
    t.equal((await chat(gateway, bot)).status, 429)
    const until = new Date(Date.now() + 3_600_000).toISOString()
    const override = { amount: 4, until, reason: 'the release' }
    t.match((await gateway.admin('POST', `/v1/admin/limits/${id}/override`, override)).json, { override })
    t.equal((await chat(gateway, bot)).status, 200)
    t.equal((await chat(gateway, bot)).status, 429)
    const usage = await gateway.admin('GET', `/v1/admin/limits/${id}/usage`)
    t.match(usage.json.meters, [{ principal: null, used: 4, spent: 4, amount: 4 }])
    const before = await gateway.admin('GET', `/v1/admin/limits/${id}/usage?span=2026-02-14T12:00:00Z`)
    t.match(before.json, {
      span: '2026-02-01T00:00:00.000Z',
      resets_at: '2026-03-01T00:00:00.000Z',
      meters: [],
    })
    t.equal((await gateway.admin('GET', `/v1/admin/limits/${id}/usage?span=yesterday`)).status, 422)
    const path = `/v1/admin/limits/${id}/override`
    t.match((await gateway.admin('DELETE', path)).json, { amount: 3, override: null })
    t.match((await gateway.admin('DELETE', path)).json, { reason: 'conflict' })
    t.match(
      (await chat(gateway, bot)).json,
      { detail: { amount: 3, spent: 4 } },
      'its own amount is in force',
    )
    t.equal((await gateway.admin('DELETE', `/v1/admin/limits/${id}`)).status, 204)
    t.equal((await chat(gateway, bot)).status, 200, 'a removed one holds no more')

    const denied = (await gateway.rows()).filter(({ status }) => status === 'denied')
    t.match(denied[0], {
      action: 'egress_llm_chat',
      detail: { reason: 'limit_reached', refused_by: 'limits' },
    })
    t.match(denied[0]?.detail.limit, { id, revision: 1, n: 4, used: 2, took: 1, most: 2 })
    const actions = (await gateway.rows()).map(({ action }) => action)
    for (const action of ['limit.created', 'limit.changed', 'limit.overridden', 'limit.removed'])
      t.ok(actions.includes(action), action)
  },
)

t.test('of 200 calls at once on a budget for ten, exactly ten reach the provider', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat', 'team.many'])
  await limit(gateway, { name: 'many', for: { holding: 'team.many' }, ...CALLS })
  const before = gateway.upstream.seen.length
  await exactlyTen(t, 200, async () => (await chat(gateway, bot)).status)
  t.equal(gateway.upstream.seen.length - before, 10)
})

t.test(
  'metrics count what each limit refuses, and say how much is used, of limits that there are',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const id = await limit(gateway, { name: 'counted', ...CALLS, amount: 2 })
    await limit(gateway, { name: 'idle', for: { holding: 'team.idle' }, each: true, ...CALLS })
    // Two are refused by the ledger, or are known to be used up.
    for (const status of [200, 200, 429, 429]) t.equal((await chat(gateway, bot)).status, status)
    const figures = async () => (await gateway.admin('GET', '/metrics')).text
    const text = await figures()
    t.match(text, 'sallyport_limit_refused_total{limit="counted"} 2')
    t.match(text, 'sallyport_limit_refused_total{limit="idle"} 0')
    t.match(text, 'sallyport_limit_used_ratio{limit="counted"} 1')
    t.match(text, 'sallyport_limit_used_ratio{limit="idle"} 0')
    await gateway.admin('DELETE', `/v1/admin/limits/${id}`)
  },
)

t.test('each principal has an amount of its own if the limit says so', async (t) => {
  const gateway = await sharedGateway(t)
  const one = await gateway.enroll('one', ['llm.chat', 'team.each'])
  const two = await gateway.enroll('two', ['llm.chat', 'team.each'])
  await limit(gateway, { name: 'each', for: { holding: 'team.each' }, each: true, ...CALLS, amount: 1 })
  t.same([(await chat(gateway, one)).status, (await chat(gateway, two)).status], [200, 200])
  t.same([(await chat(gateway, one)).status, (await chat(gateway, two)).status], [429, 429])
})

t.test('a limit of models is of models as they are routed, whatever a caller calls them', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat', 'team.models'])
  await limit(gateway, {
    name: 'models',
    for: { holding: 'team.models', models: ['openai/gpt-4*'] },
    ...CALLS,
    amount: 0,
  })
  t.equal((await chat(gateway, bot, { ...CHAT, model: 'gpt-5' })).status, 200)
  for (const model of ['gpt-4o', 'openai/gpt-4o'])
    t.equal((await chat(gateway, bot, { ...CHAT, model })).status, 429, model)
  const said = (await gateway.rows()).filter(({ detail }) => detail.routed !== undefined)
  t.match(
    said.slice(-3).map(({ status, detail: { routed } }) => ({ status, routed })),
    [
      { status: 'allowed', routed: ['openai/gpt-5'] },
      { status: 'denied', routed: ['openai/gpt-4o'] },
      { status: 'denied', routed: ['openai/gpt-4o'] },
    ],
    'rows say how they were routed, so that verifiers know whom the limit is for',
  )
})

t.test('tokens are charged as the provider states them, and what was held is free again', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat', 'team.tokens'])
  const id = await limit(gateway, {
    name: 'tokens',
    for: { holding: 'team.tokens' },
    measure: 'tokens',
    per: 'day',
    amount: 10_000,
  })
  gateway.upstream.answer = (response) => {
    response.setHeader('content-type', 'application/json')
    response.end(
      JSON.stringify({ model: 'gpt-test', choices: [], usage: { prompt_tokens: 7, completion_tokens: 5 } }),
    )
  }
  t.equal((await chat(gateway, bot)).status, 200)
  let meters = []
  while (meters[0]?.used !== 12)
    meters = (await gateway.admin('GET', `/v1/admin/limits/${id}/usage`)).json.meters
  t.match(meters, [{ used: 12, spent: 12 }])
  const outcome = (await gateway.rows()).findLast(({ status }) => status === 'success')
  t.match(outcome?.detail.limits, [{ id, charged: 12, n: 2 }])
})

t.test(
  'a strict limit refuses a call whose answer has no bound, and holds the most of one that has',
  async (t) => {
    const gateway = await sharedGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat', 'team.strict'])
    const strict = { measure: 'tokens', per: 'day', amount: 1_000, strict: true }
    await limit(gateway, { name: 'strict', for: { holding: 'team.strict' }, ...strict })
    const unbounded = await chat(gateway, bot)
    t.match(unbounded.json, { reason: 'limit_unbounded' })
    t.equal(unbounded.status, 400)
    t.equal((await chat(gateway, bot, { ...CHAT, max_tokens: 100 })).status, 200)
    const large = await chat(gateway, bot, { ...CHAT, max_tokens: 1_000 })
    t.equal(large.status, 429)
    t.match(
      large.json.message,
      /^This call would hold 1,\d\d\d tokens of strict, which has \d+ tokens left\.$/,
    )
  },
)

t.test('a limit that only alerts changes no answer', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat', 'team.alert'])
  await limit(gateway, { name: 'alert', for: { holding: 'team.alert' }, ...CALLS, amount: 0, on: 'alert' })
  const answers = [await chat(gateway, bot), await chat(gateway, bot)]
  t.same(
    answers.map(({ status }) => status),
    [200, 200],
  )
})

t.test('a bad limit is refused by its member, and nothing is stored', async (t) => {
  const gateway = await sharedGateway(t)
  const bad: readonly (readonly [NewLimit, string])[] = [
    [{ name: 'Bad Name', ...CALLS }, 'name'],
    [{ name: 'a', ...CALLS, amount: -1 }, 'amount'],
    [{ name: 'a', ...CALLS, amount: 1.5 }, 'amount'],
    [{ name: 'a', measure: 'calls', amount: 1 }, 'per'],
    [{ name: 'a', measure: 'concurrent', per: 'day', amount: 1 }, 'per'],
    [{ name: 'a', measure: 'cost', per: 'second', amount: 1 }, 'per'],
    [{ name: 'a', ...CALLS, burst: 2 }, 'burst'],
    [{ name: 'a', ...CALLS, strict: true }, 'strict'],
    [{ name: 'a', ...CALLS, for: { models: ['a*'], tools: ['b*'] } }, 'for'],
    [{ name: 'a', ...CALLS, for: { models: [] } }, 'for.models'],
    [{ name: 'a', ...CALLS, colour: 'red' }, 'colour'],
  ]
  for (const [body, field] of bad) {
    const { status, json } = await gateway.admin('POST', '/v1/admin/limits', body)
    t.equal(status, 422, JSON.stringify(body))
    t.equal(json.detail.errors[0].field, field)
  }
  await limit(gateway, { name: 'taken', ...CALLS, for: { holding: 'team.nobody' } })
  t.equal((await gateway.admin('POST', '/v1/admin/limits', { name: 'taken', ...CALLS })).status, 409)
  const { limits } = (await gateway.admin('GET', '/v1/admin/limits')).json
  t.notOk(limits.some(({ name }: { name: string }) => name === 'a'))
})

const PRICES = `plugin: prices
table: none
models:
  - { match: "openai/gpt-4*", input: 1, output: 2 }
`

t.test('a budget of money is charged what calls cost, and a model without a price is refused', async (t) => {
  const gateway = await testGateway(t, { files: { '55-prices.yaml': PRICES } })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const id = await limit(gateway, { name: 'money', measure: 'cost', per: 'month', amount: 10_000 })
  const body = { ...CHAT, model: 'gpt-4o', max_tokens: 1_000 }
  gateway.upstream.answer = (response) => {
    response.setHeader('content-type', 'application/json')
    const usage = { prompt_tokens: 700, completion_tokens: 500 }
    response.end(JSON.stringify({ model: 'gpt-4o', choices: [], usage }))
  }
  const spent = async () => (await gateway.admin('GET', `/v1/admin/limits/${id}/usage`)).json.meters[0]
  for (let calls = 1; calls <= 5; calls += 1) {
    t.equal((await chat(gateway, bot, body)).status, 200)
    let meter = await spent()
    while (meter.used !== meter.spent) meter = await spent()
    t.equal(meter.spent, calls * 1_700, 'a dollar for a million tokens in, two for one out')
  }
  const refused = await chat(gateway, bot, body)
  t.equal(refused.status, 429)
  t.match(
    refused.json.message,
    /^This call would hold 0\.00\d+ USD of money, which has 0\.0015\d* USD left\.$/,
  )
  const priceOf = async (model: string) =>
    (await gateway.admin('GET', `/v1/admin/prices?model=${model}`)).json
  const rates = { tokens: { input: 1_000_000, output: 2_000_000 } }
  const entry = { provider: 'openai', model: 'gpt-4o', entry: 'openai/gpt-4*', source: 'file', rates }
  for (const name of ['gpt-4o', 'openai%2Fgpt-4o'])
    t.match(await priceOf(name), { configured: true, table: null, prices: [entry] })
  t.match(await priceOf('gpt-5'), { prices: [{ model: 'gpt-5', price: null, entry: null, rates: null }] })
  t.equal((await gateway.admin('GET', '/v1/admin/prices')).status, 422, 'it names a model')
  const unpriced = await chat(gateway, bot, { ...CHAT, model: 'gpt-5' })
  t.match([unpriced.status, unpriced.json.reason], [400, 'limit_unpriced'])
  const [decision] = (await gateway.rows()).filter(({ status }) => status === 'allowed')
  t.match(decision?.detail.limits, [{ id, n: 1, used: 0, revision: 1 }])
  const outcomes = (await gateway.rows({ action: 'egress_llm_chat' })).filter(
    ({ status }) => status === 'success',
  )
  t.match(outcomes, Array(5).fill({ detail: { limits: [{ id, charged: 1_700 }] } }))
})

t.test(
  'what a call held is charged if the provider states nothing, and nothing if none took it on',
  async (t) => {
    const gateway = await sharedGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat', 'team.unsaid'])
    const id = await limit(gateway, {
      ...{
        name: 'unsaid',
        for: { holding: 'team.unsaid' },
        measure: 'tokens',
        per: 'day',
        amount: 1_000_000,
      },
    })
    const meter = async () => {
      let [found] = (await gateway.admin('GET', `/v1/admin/limits/${id}/usage`)).json.meters
      while (found.used !== found.spent)
        [found] = (await gateway.admin('GET', `/v1/admin/limits/${id}/usage`)).json.meters
      return found.spent
    }
    gateway.upstream.answer = (response) =>
      void response.writeHead(400, { 'content-type': 'application/json' }).end('{}')
    t.equal((await chat(gateway, bot, { ...CHAT, max_tokens: 100 })).status, 400)
    t.equal(await meter(), 0, 'a refusal of the provider costs nothing')
    gateway.upstream.answer = (response) => {
      response.setHeader('content-type', 'application/json')
      response.end(JSON.stringify({ model: 'gpt-test', choices: [] }))
    }
    t.equal((await chat(gateway, bot, { ...CHAT, max_tokens: 100 })).status, 200)
    t.ok((await meter()) > 100, 'the bytes of the body, and the most that was asked for')
  },
)

t.test(
  'of two that may be under way at once a third is refused, and asked again after one has ended',
  async (t) => {
    const gateway = await sharedGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat', 'team.slow'])
    await limit(gateway, { name: 'slow', for: { holding: 'team.slow' }, measure: 'concurrent', amount: 2 })
    const waiting: (() => void)[] = []
    gateway.upstream.answer = (response) => {
      waiting.push(() => {
        response.setHeader('content-type', 'application/json')
        response.end(JSON.stringify({ model: 'gpt-test', choices: [] }))
      })
    }
    const two = [chat(gateway, bot), chat(gateway, bot)]
    while (waiting.length < 2) await nextTurn()
    const third = await chat(gateway, bot)
    t.equal(third.status, 429)
    t.equal(third.headers['retry-after'], '5')
    t.match(third.json.message, /^slow is reached: as many calls are under way as may be\./)
    waiting.shift()?.()
    t.equal((await Promise.race(two)).status, 200)
    let again = chat(gateway, bot)
    while (waiting.length < 2) {
      if ((await Promise.race([again, nextTurn()]))?.status === 429) again = chat(gateway, bot)
    }
    for (const end of waiting) end()
    t.equal((await again).status, 200)
    await Promise.all(two)
  },
)
