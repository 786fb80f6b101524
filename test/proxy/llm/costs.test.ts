import { readFileSync, writeFileSync } from 'node:fs'
import type { ServerResponse } from 'node:http'
import { join } from 'node:path'
import t from 'tap'
import { canonical, exportOf, resealed } from '../../support/db/resealed.ts'
import { sameStates } from '../../support/docs/states.ts'
import { type Json, testGateway } from '../../support/gateway.ts'
import { rawConnect, requestBytes } from '../../support/raw.ts'
import { settledCalls } from '../../support/settled.ts'
import { allVerifiers, withoutPython } from '../../support/verifiers.ts'

const CHAT = '/v1/chat/completions'
const SSE = { 'content-type': 'text/event-stream' }
const PRICES = `plugin: prices
table: none
models:
  - { match: "openai/gpt-free*", free: true }
  - { match: "openai/gpt-big", input: 5, cached: 0.5, cache_write: 6.25, output: 30, search: 0.01,
      above: [{ input_over: 272000, input: 10, cached: 1, cache_write: 12.5, output: 45 }] }
  - { match: "anthropic/claude-*", input: 3, output: 15, cached: 0.3, cache_write: 3.75, cache_write_1h: 6 }
`
const FILES = {
  '55-prices.yaml': PRICES,
  '50-llm.yaml': `plugin: llm
providers:
  - { name: silent, dialect: openai, base_url: UPSTREAM/silent, api_key: k, models: ["gpt-late"], first_byte_timeout_ms: 200 }
  - { name: openai, dialect: openai, base_url: UPSTREAM/v1, api_key: k, models: ["gpt-*"], aliases: { big: gpt-big } }
  - { name: anthropic, dialect: anthropic, base_url: UPSTREAM/v1, api_key: k, models: ["claude-*"] }
`,
}

const gateway = await testGateway(t, { files: FILES })
const bot = await gateway.enroll('bot', ['llm.chat'])

type Answer = (res: ServerResponse, url: string) => void

/** Answers a call so, and resolves with the cost in its outcome, and with its row. */
async function costOf(model: string, answer: Answer, more: object = {}, path = CHAT): Promise<Json> {
  gateway.upstream.answer = (res, { url }) => answer(res, url)
  const { headers } = await gateway.call(bot, 'POST', path, { body: { model, ...more } })
  return costIn(String(headers['x-request-id']))
}

async function costIn(id: string): Promise<Json> {
  const { ended } = await settledCalls(gateway)
  const detail = ended.find(({ request_id: of }) => of === id)?.detail as Json
  return detail?.cost ?? detail
}

const counted =
  (usage: object, model = 'gpt-big', more: object = {}): Answer =>
  (res) => {
    res.setHeader('content-type', 'application/json')
    res.end(JSON.stringify({ id: 'c', object: 'chat.completion', model, choices: [], usage, ...more }))
  }
const refused =
  (status: number): Answer =>
  (res) => {
    res.writeHead(status, { 'content-type': 'application/json' })
    res.end('{"error":{"message":"no","type":"x"}}')
  }

await t.test("a call costs what its provider's counts and its prices make", async (t) => {
  const stated = { price: /^[0-9a-f]{16}$/, priced: 'stated' }
  const usage = { prompt_tokens: 1000, completion_tokens: 100 }
  t.match(await costOf('gpt-big', counted(usage)), { microusd: 8_000, ...stated })
  t.match(await costOf('big', counted(usage)), { microusd: 8_000 }, 'an alias hides nothing')
  t.match(await costOf('openai/gpt-big', counted(usage)), { microusd: 8_000 }, 'nor does a prefix')
  const written = { ...usage, prompt_tokens_details: { cached_tokens: 500, cache_write_tokens: 400 } }
  t.match(await costOf('gpt-big', counted(written)), { microusd: 250 + 2_500 + 500 + 3_000 }, 'cache writes')
  const long = { prompt_tokens: 300_000, completion_tokens: 10 }
  t.match(await costOf('gpt-big', counted(long)), { microusd: 3_000_450, ...stated }, 'the dearer tier')
  const zero = { prompt_tokens: 0, completion_tokens: 0 }
  t.match(await costOf('gpt-big', counted(zero)), { microusd: 0, ...stated }, 'a stated zero is stated')
  const message = { input_tokens: 10, output_tokens: 2, cache_creation_input_tokens: 1000 }
  const hour = { ...message, cache_creation: { ephemeral_1h_input_tokens: 1000 } }
  t.match(await costOf('claude-x', counted(hour, 'claude-x'), {}, '/v1/messages'), {
    microusd: 6_060,
    ...stated,
  })
  const embedded = counted({ prompt_tokens: 8, total_tokens: 8 })
  t.match(await costOf('gpt-big', embedded, { input: 'hi' }, '/v1/embeddings'), { microusd: 40, ...stated })
})

await t.test('what has no price is named, and costs nothing that is known', async (t) => {
  const usage = { prompt_tokens: 1000, completion_tokens: 100 }
  t.same(await costOf('gpt-else', counted(usage, 'gpt-else')), {
    microusd: 0,
    price: null,
    priced: 'unpriced',
  })
  t.match(await costOf('gpt-free-1', counted(usage, 'gpt-free-1')), {
    microusd: 0,
    price: /./,
    priced: 'free',
  })
  const odd = await costOf('gpt-big', counted(usage, 'gpt-big', { service_tier: 'odd' }))
  t.match(odd, { microusd: 8_000, priced: 'partly', unpriced: ['service_tier'] })
  t.match(
    await costOf('gpt-mine', counted(usage, 'gpt-big')),
    { microusd: 8_000, priced: 'stated' },
    'a deployment costs what the model costs that it names',
  )
  const cheaper = await costOf('gpt-big', counted(usage, 'gpt-free-9'))
  t.match(cheaper, { microusd: 0, priced: 'free' }, 'the model that has answered counts')
})

await t.test('an answer that states nothing is estimated, a stream too', async (t) => {
  const whole = await costOf(
    'gpt-big',
    (res) => void res.setHeader('content-type', 'application/json').end('{"choices":[]}'),
  )
  t.match(whole, { priced: 'estimated', estimated: { input: 5, output: 4 }, microusd: 25 + 120 })
  const stream: Answer = (res) => void res.writeHead(200, SSE).end('data: {"choices":[]}\n\ndata: [DONE]\n\n')
  const { priced, microusd, estimated } = await costOf('gpt-big', stream, { stream: true })
  t.match({ priced, estimated }, { priced: 'estimated', estimated: { output: 2 } })
  t.ok(microusd > 0)
})

await t.test('nothing is charged for a refusal, and an attempt that broke costs its input', async (t) => {
  const free = { microusd: 0, price: null, priced: 'free' }
  for (const status of [400, 401, 429, 500, 503])
    t.same(await costOf('gpt-big', refused(status)), free, `${status}`)
  const broken: Answer = (res) => void res.socket?.resetAndDestroy()
  t.match(await costOf('gpt-big', broken), {
    priced: 'estimated',
    price: null,
    microusd: 25,
    tried: { input: 5 },
  })
  const unread: Answer = (res) => void res.writeHead(200, { 'content-type': 'text/html' }).end('<p>hi</p>')
  t.match(await costOf('gpt-big', unread), { priced: 'estimated', tried: { input: 5 }, microusd: 25 })
  const usage = counted({ prompt_tokens: 10, completion_tokens: 1 }, 'gpt-late')
  const late = await costOf('gpt-late', (res, url) =>
    url.startsWith('/silent') ? undefined : usage(res, url),
  )
  t.match(late, { priced: 'unpriced', tried: { prices: [null] } }, 'a timeout, then an answer')
})

await t.test('who hangs up pays what was stated, and the rest by its bytes', async (t) => {
  const usage = { input_tokens: 1000, output_tokens: 1 }
  const start = { type: 'message_start', message: { model: 'claude-x', usage } }
  gateway.upstream.answer = (res) => {
    res.writeHead(200, SSE)
    res.write(`event: message_start\ndata: ${JSON.stringify(start)}\n\n: ${'x'.repeat(3_200)}\n\n`)
    res.write('event: ping\ndata: {"type":"ping"}\n\n')
  }
  const connection = await rawConnect(t, gateway, bot)
  const body = JSON.stringify({ model: 'claude-x', stream: true })
  connection.send(requestBytes('POST', '/v1/messages', [], body))
  const received = await connection.until('"ping"')
  connection.socket.destroy()
  const cost = await costIn(/x-request-id: (\S+)/.exec(received)?.[1] ?? '')
  t.match(cost, { priced: 'partly', estimated: { input: 0 } })
  t.ok(cost.microusd >= 3_000 + 100 * 15, String(cost.microusd))
})

await t.test('each price stands in a row before the first cost that names it', async (t) => {
  const { text } = await gateway.admin('GET', '/v1/admin/audit/export')
  const rows: readonly Json[] = text
    .trimEnd()
    .split('\n')
    .map((line: string) => JSON.parse(line))
  const stated = rows.filter(({ action }) => action === 'price.stated')
  t.match(stated[0]?.detail, {
    provider: 'openai',
    model: 'gpt-big',
    source: 'file',
    rates: { tokens: { input: 5_000_000 } },
  })
  const known = new Set<string>()
  for (const { action, detail } of rows) {
    if (action === 'price.stated') known.add(detail.price)
    const { cost } = detail
    for (const price of [cost?.price, ...(cost?.tried?.prices ?? [])])
      if (price) t.ok(known.has(price), 'stated before')
  }
  t.equal(stated.length, known.size, 'once: the calls came one after another')
})

await t.test(
  'a cost, a count or a rate that was changed is found by all verifiers',
  { skip: withoutPython },
  async (t) => {
    const verify = allVerifiers(t)
    const directory = t.testdir()
    const { text } = await gateway.admin('GET', '/v1/admin/audit/export')
    const rows: readonly Json[] = text
      .trimEnd()
      .split('\n')
      .map((line: string) => JSON.parse(line))
    const judged = async (name: string, changed: readonly Json[]) => {
      const file = join(directory, `${name}.ndjson`)
      writeFileSync(file, exportOf(resealed(changed)))
      return verify(file, '--authority')
    }
    const honest = await judged('honest', rows)
    t.equal(honest.code, 0, honest.out + honest.err)
    const numbers: readonly (readonly [string, (detail: Json) => boolean, (detail: Json) => void])[] = [
      ['cost', ({ cost }) => cost?.priced === 'stated', ({ cost }) => (cost.microusd += 1)],
      [
        'input',
        ({ cost, tokens }) => cost?.priced === 'stated' && tokens.input > 9,
        ({ tokens }) => (tokens.input += 1),
      ],
      ['written', ({ tokens }) => tokens?.cache_write > 0, ({ tokens }) => (tokens.cache_write += 1)],
      ['estimate', ({ cost }) => cost?.estimated?.output > 0, ({ cost }) => (cost.estimated.output += 1)],
      ['tried', ({ cost }) => cost?.tried?.prices[0], ({ cost }) => (cost.tried.input += 1)],
      ['price', ({ cost }) => cost?.price, ({ cost }) => (cost.price = '0123456789abcdef')],
      ['form', ({ cost }) => cost?.price, ({ cost }) => (cost.microusd = -1)],
      ['rate', ({ rates }) => rates?.tokens?.input > 0, ({ rates }) => (rates.tokens.input += 1)],
      ['factor', ({ rates }) => rates?.factors, ({ rates }) => (rates.factors.speed = { fast: 1 })],
    ]
    for (const [name, isOne, change] of numbers) {
      const at = rows.findIndex(({ detail }) => isOne(detail))
      t.ok(at >= 0, name)
      const row = JSON.parse(canonical(rows[at] ?? {}))
      change(row.detail)
      t.equal((await judged(name, rows.with(at, row))).code, 5, name)
    }
    sameStates(t, rows)
  },
)

await t.test('a bad price stops a start with its place, and a reload keeps the prices before', async (t) => {
  const path = join(gateway.pluginsDir, '55-prices.yaml')
  writeFileSync(path, PRICES.replace('input: 5,', 'input: -5,'))
  t.equal(await gateway.reload(), false)
  const usage = { prompt_tokens: 1000, completion_tokens: 100 }
  t.match(await costOf('gpt-big', counted(usage)), { microusd: 8_000 })
  writeFileSync(path, readFileSync(path, 'utf8').replace('input: -5,', 'input: 6,'))
  t.equal(await gateway.reload(), true)
  t.match(await costOf('gpt-big', counted(usage)), { microusd: 9_000 })
  writeFileSync(path, 'plugin: prices\ntable: none\n')
  t.equal(await gateway.reload(), true)
  t.equal((await costOf('gpt-big', counted(usage))).cost, undefined, 'without prices nothing is said')
})
