import t, { type Test } from 'tap'
import { modelNameFault, providersOf } from '../../../proxy/llm/routing.ts'
import { LOSS_NAMES } from '../../../proxy/llm/translate/losses.ts'
import { hasCredentials } from '../../../proxy/llm/upstream/headers.ts'
import { type Json, testGateway } from '../../support/gateway.ts'
import { type CatalogueStage, catalogueStage } from '../../support/llm/catalogue.ts'
import { anthropic, openai, options } from '../../support/llm/facts.ts'
import { answer, nobody, rawUpstream } from '../../support/llm/upstreams.ts'
import { refused } from '../../support/refused.ts'

const OPENAI_LIST = JSON.stringify({
  object: 'list',
  data: [
    { id: 'gpt-4o', object: 'model', created: 1_715_367_049, owned_by: 'system' },
    { id: 'gpt-5', object: 'model', created: 'soon' },
    { id: 'whisper-1', object: 'model' },
    { id: 7 },
    null,
  ],
})
const ANTHROPIC_LIST = JSON.stringify({
  data: [{ type: 'model', id: 'claude-x', display_name: 'Claude X', created_at: '2025-10-01T00:00:00Z' }],
})

await t.test(
  '§3 the list holds what a call would reach, of configured providers, in the OpenAI shape',
  async (t) => {
    const one = await rawUpstream(t, (socket) => socket.write(answer(200, OPENAI_LIST)))
    const two = await rawUpstream(t, (socket) => socket.write(answer(200, ANTHROPIC_LIST)))
    const { round, ask } = catalogueStage(t, [
      openai(one.url, { models: ['gpt-*', 'o9'], aliases: { fast: 'gpt-4o' } }),
      anthropic(two.url),
      openai(one.url, { name: 'keyless', api_key: '', models: ['secret-*', 'literal'] }),
    ])
    await round()
    t.strictSame(await ask({ authorization: 'Bearer canary', 'x-stainless-os': 'canary' }), {
      object: 'list',
      data: [
        { id: 'fast', object: 'model', created: 0, owned_by: 'openai' },
        { id: 'o9', object: 'model', created: 0, owned_by: 'openai' },
        { id: 'gpt-4o', object: 'model', created: 1_715_367_049, owned_by: 'openai' },
        { id: 'gpt-5', object: 'model', created: 0, owned_by: 'openai' },
        { id: 'claude-x', object: 'model', created: Date.UTC(2025, 9, 1) / 1000, owned_by: 'anthropic' },
      ],
    })
    t.match(one.seen[0]?.head, /^GET \/v1\/models HTTP\/1\.1\r\n/)
    t.match(one.seen[0]?.head, /\r\nauthorization: Bearer sk-up-1\r\n/)
    t.match(two.seen[0]?.head, /^GET \/v1\/models\?limit=1000 HTTP\/1\.1\r\n/)
    t.notMatch(one.seen[0]?.head, /canary|content-length|transfer-encoding/)
    t.equal(one.seen.length, 1)
  },
)

await t.test('§3 a request that names an anthropic-version gets the Anthropic shape', async (t) => {
  const { url } = await rawUpstream(t, (socket) => socket.write(answer(200, ANTHROPIC_LIST)))
  const { round, ask, reload } = catalogueStage(t, [anthropic(url, { aliases: { quick: 'claude-x' } })])
  await round()
  t.strictSame(await ask({ 'anthropic-version': '2023-06-01' }), {
    data: [
      { type: 'model', id: 'quick', display_name: 'quick', created_at: '1970-01-01T00:00:00Z' },
      { type: 'model', id: 'claude-x', display_name: 'Claude X', created_at: '2025-10-01T00:00:00Z' },
    ],
    has_more: false,
    first_id: 'quick',
    last_id: 'claude-x',
  })
  reload([])
  t.match(await ask({ 'anthropic-version': '1' }), { data: [], first_id: null, last_id: null })
})

await t.test('GET /v1/models/{id} shows one model of the list, in either shape', async (t) => {
  const one = await rawUpstream(t, (socket) => socket.write(answer(200, OPENAI_LIST)))
  const two = await rawUpstream(t, (socket) => socket.write(answer(200, ANTHROPIC_LIST)))
  const { round, get } = catalogueStage(t, [
    openai(one.url, {
      ...{ models: ['gpt-*', 'acme/llama'], lossy: ['top_k'] },
      aliases: { fast: 'gpt-4o', lax: { model: 'gpt-4o', lossy: 'all' } },
    }),
    anthropic(two.url),
    openai(one.url, { name: 'keyless', api_key: '', models: ['literal'] }),
  ])
  await round()
  const wires = { chat: 'direct', responses: 'direct', messages: 'translated' }
  const gpt = {
    id: 'gpt-4o',
    object: 'model',
    created: 1_715_367_049,
    owned_by: 'openai',
    wires,
    lossy: ['top_k'],
  }
  t.strictSame(await get({ id: 'gpt-4o' }), gpt)
  t.match(await get({ id: 'lax' }), { lossy: LOSS_NAMES }, 'an alias has its own')
  t.strictSame(await get({ id: 'fast' }), { ...gpt, id: 'fast', created: 0 })
  const claude = {
    type: 'model',
    id: 'claude-x',
    display_name: 'Claude X',
    created_at: '2025-10-01T00:00:00Z',
    wires: { chat: 'translated', responses: 'translated', messages: 'direct' },
    lossy: [],
  }
  t.strictSame(await get({ id: 'claude-x' }, { 'anthropic-version': '2023-06-01' }), claude)
  // By the prefix of a provider, as calls name it: percent-encoded or not, and also what no pattern has.
  t.strictSame(await get({ id: 'openai/gpt-4o' }), { ...gpt, id: 'openai/gpt-4o' })
  t.match(await get({ provider: 'openai', id: 'whisper-1' }), { id: 'openai/whisper-1', owned_by: 'openai' })
  t.match(await get({ provider: 'openai', maker: 'acme', id: 'llama' }), { id: 'openai/acme/llama' })
  t.match(await get({ provider: 'acme', id: 'llama' }), { id: 'acme/llama', owned_by: 'openai' })
  for (const id of [
    'whisper-1',
    'gpt-6',
    'gpt-*',
    'literal',
    'keyless/literal',
    'openai/',
    'openai',
    'nobody/gpt-4o',
    '__proto__',
  ])
    await t.rejects(get({ id }), refused('model_not_found'), id)
})

await t.test('§3 no request of a caller sends anything to a provider', async (t) => {
  const { url, seen } = await rawUpstream(t, (socket) => socket.write(answer(200, OPENAI_LIST)))
  const { round, ids, begun } = catalogueStage(t, [openai(url)])
  const waiting = Promise.all([ids(), ids(), ids()])
  t.equal(begun.length, 0)
  await round()
  const list = ['gpt-4o', 'gpt-5']
  t.strictSame(await waiting, [list, list, list], 'those who came before the first reading waited for it')
  t.strictSame(await ids(), list)
  t.equal(begun.length, 1)
  t.equal(seen.length, 1)
})

await t.test(
  '§3 a default provider without patterns is listed whole, another one by its aliases alone',
  async (t) => {
    const { url } = await rawUpstream(t, (socket) => socket.write(answer(200, OPENAI_LIST)))
    const whole = catalogueStage(t, [openai(url, { models: [] })], { default_provider: 'openai' })
    await whole.round()
    t.strictSame(await whole.ids(), ['gpt-4o', 'gpt-5', 'whisper-1'])
    const aliased = catalogueStage(t, [openai(url, { models: [], aliases: { fast: 'x' } })])
    await aliased.round()
    t.strictSame(await aliased.ids(), ['fast'])
  },
)

await t.test(
  '§3 a passthrough provider is never asked: the list would be one caller’s and go to all',
  async (t) => {
    const { url, connections } = await rawUpstream(t, () => {})
    const passing = openai(url, { auth: 'passthrough', models: ['gpt-*', 'gpt-4o'] })
    const { round, ids, begun } = catalogueStage(t, [passing])
    t.strictSame(await ids(), ['gpt-4o'], 'nobody waits for what will not come')
    await round()
    t.strictSame(await ids(), ['gpt-4o'])
    t.equal(begun.length, 0)
    t.equal(connections(), 0)
  },
)

await t.test(
  '§3 who waits for a first reading waits 3 s at most, and gets the names of the file',
  async (t) => {
    const { url } = await rawUpstream(t, () => {})
    const { round, ids } = catalogueStage(t, [openai(url, { models: ['gpt-*', 'o9'] })])
    void round()
    const before = performance.now()
    t.strictSame(await ids(), ['o9'])
    const took = performance.now() - before
    t.ok(took > 2_900 && took < 9_000, `${took} ms`)
  },
)

await t.test('threat 38 a list is cut at 10,000 models, and an id or a name at 256 characters', async (t) => {
  const many = Array.from({ length: 10_001 }, (_, i) => ({ id: `m${i}`, display_name: 'n'.repeat(300) }))
  const list = JSON.stringify({ data: [{ id: 'x'.repeat(257) }, ...many] })
  const { url } = await rawUpstream(t, (socket) => socket.write(answer(200, list)))
  const { ask } = await begunStage(t, url)
  const { data } = await ask({ 'anthropic-version': '1' })
  t.equal(data.length, 10_000)
  t.strictSame([data[0].id, data[0].display_name.length], ['m0', 256])
})

const list = (...ids: readonly string[]) => JSON.stringify({ data: ids.map((id) => ({ id })) })

/** Every listed name reaches the provider that it is listed for, by the routing of calls, and can be gotten. */
async function agrees(t: Test, stage: CatalogueStage, ...file: Parameters<typeof options>): Promise<void> {
  const route = providersOf(options(...file))
  for (const { id, owned_by: owner } of (await stage.ask()).data) {
    const reached = route(id).filter((provider) => hasCredentials(provider, { authorization: 'Bearer own' }))
    t.equal(reached[0]?.name, owner, id)
    t.match(await stage.get({ id }), { id, owned_by: owner })
    t.equal(modelNameFault(id), null, id)
  }
}

for (const [name, providers, more, expected] of [
  [
    'a name whose prefix is another provider',
    {
      router: ['router', ['*'], list('openai/gpt-5', 'acme/x:free')],
      openai: ['openai', ['gpt-*'], list('gpt-5')],
    },
    {},
    ['router/openai/gpt-5', 'acme/x:free', 'openai/gpt-5'],
  ],
  [
    'a name whose prefix is a provider without a key',
    { router: ['router', ['*'], list('openai/gpt-5')], openai: ['openai', ['gpt-*'], '', { api_key: '' }] },
    {},
    ['router/openai/gpt-5'],
  ],
  [
    'an alias that shadows a model of another provider',
    {
      one: ['one', ['gpt-*'], list('gpt-5', 'gpt-4')],
      two: ['two', [], list('x'), { aliases: { 'gpt-5': 'x' } }],
    },
    {},
    ['gpt-4', 'gpt-5'],
  ],
  [
    'an alias of a provider without a key',
    {
      one: ['one', [], '', { api_key: '', aliases: { fast: 'x' } }],
      two: ['two', ['*'], list('fast', 'slow')],
    },
    {},
    ['two/fast', 'slow'],
  ],
  [
    'an alias with the name of a provider before it',
    { one: ['one', ['a*'], list('a1'), { aliases: { 'one/quick': 'a1', 'A B': 'a1', 'ü:x%': 'a1' } }] },
    {},
    ['one/one/quick', 'A B', 'ü:x%', 'a1'],
  ],
  [
    'the default provider, of patterns that do not have the name',
    {
      one: ['one', ['gpt-*'], list('gpt-5', 'whisper-1', 'claude-x')],
      two: ['two', ['claude-*'], list('claude-x')],
    },
    { default_provider: 'one' },
    ['gpt-5', 'whisper-1', 'claude-x'],
  ],
  [
    'two providers of one name, of which the first has not got it',
    { one: ['one', ['*'], list('a', 'b')], two: ['two', ['*'], list('b', 'c')] },
    {},
    ['a', 'b', 'two/c'],
  ],
  [
    'names that no call can have',
    { one: ['one', ['*'], list('a,b', ' a', 'a ', 'a\u0000', '\ud800', 'x'.repeat(257), 'good')] },
    {},
    ['good'],
  ],
] as const) {
  await t.test(`the list, one of it and the call agree about ${name}`, async (t) => {
    const file = await Promise.all(
      Object.values(providers).map(async ([name, models, answered, extra = {}]) => {
        const { url } = await rawUpstream(t, (socket) => socket.write(answer(200, answered)))
        return openai(url, { name, models: [...models], ...extra })
      }),
    )
    const stage = catalogueStage(t, file, more)
    await stage.round()
    t.strictSame(await stage.ids(), expected)
    await agrees(t, stage, file, more)
  })
}

await t.test('a name that a pattern has can be gotten of a provider whose list nobody knows', async (t) => {
  const down = openai(await nobody(), { name: 'down', models: ['gpt-*'] })
  const { url } = await rawUpstream(t, (socket) => socket.write(answer(200, list())))
  const passing = openai(url, { name: 'passing', auth: 'passthrough', models: ['o*'] })
  const { round, ids, get } = catalogueStage(t, [
    down,
    passing,
    openai(url, { name: 'empty', models: ['x-*'] }),
  ])
  await round()
  t.strictSame(await ids(), [])
  for (const id of ['gpt-9', 'down/gpt-9', 'o3', 'x-1']) t.match(await get({ id }), { id })
  for (const id of ['down/other', 'no', 'down/', 'passing']) {
    await t.rejects(get({ id }), refused('model_not_found'), id)
  }
})

const NAMES = ['a', 'b/c', 'ü d']
for (const [name, answered] of [
  ['a bare array', [{ id: 'a' }, { id: 'b/c' }, { id: 'ü d' }]],
  ['names alone', NAMES],
  ['names as data', { data: NAMES }],
  ['models of names', { models: [{ name: 'a' }, { model: 'b/c', name: 'other' }, { slug: 'ü d' }] }],
  [
    'odd entries',
    { data: [null, 7, [], {}, { id: 7 }, { id: '' }, '', { id: 'a' }, 'a', ...NAMES, { id: {} }] },
  ],
  ['data that is an object, and models', { data: {}, models: NAMES }],
] as const) {
  await t.test(`a list of ${name} counts, and an odd entry costs itself alone`, async (t) => {
    const body = `\ufeff${JSON.stringify(answered)}`
    const { url } = await rawUpstream(t, (socket) => socket.write(answer(200, body)))
    t.strictSame(await (await begunStage(t, url)).ids(), NAMES)
  })
}

await t.test('a list without any model is empty, and no fault', async (t) => {
  const { url } = await rawUpstream(t, (socket) => socket.write(answer(200, '{"object":"list","data":null}')))
  const { ids, log } = await begunStage(t, url)
  t.strictSame(await ids(), [])
  t.strictSame(log, [])
})

await t.test('a list in pages is read to its end, and no cursor leads in circles', async (t) => {
  const page = (id: string, next: string | null) =>
    answer(200, JSON.stringify({ data: [{ id }], has_more: next !== null, last_id: next }))
  const paged = await rawUpstream(t, (socket, { head }) => {
    const [, after] = /after_id=(\S+)/.exec(head) ?? []
    socket.write(after === undefined ? page('claude-a', 'x/1') : page('claude-b', null))
  })
  const whole = catalogueStage(t, [anthropic(paged.url)])
  await whole.round()
  t.strictSame(await whole.ids(), ['claude-a', 'claude-b'])
  t.match(paged.seen[1]?.head, /^GET \/v1\/models\?limit=1000&after_id=x%2F1 /)
  for (const [second, requests] of [
    [page('claude-b', 'same'), 2],
    [answer(500, '{}'), 2],
    [answer(200, '{"error":1}'), 2],
  ] as const) {
    const odd = await rawUpstream(t, (socket, { head }) =>
      socket.write(head.includes('after_id') ? second : page('claude-a', 'same')),
    )
    const { round, ids } = catalogueStage(t, [anthropic(odd.url)])
    await round()
    t.match(await ids(), ['claude-a'], 'a later page costs no earlier one')
    t.equal(odd.seen.length, requests)
  }
})

await t.test('a caller of Anthropic’s API gets the pages that it asks for', async (t) => {
  const { url } = await rawUpstream(t, (socket) => socket.write(answer(200, list('a', 'b', 'c'))))
  const { ask } = await begunStage(t, url)
  for (const [query, ids, more] of [
    ['', ['a', 'b', 'c'], false],
    ['limit=2', ['a', 'b'], true],
    ['limit=2&after_id=b', ['c'], false],
    ['after_id=c', [], false],
    ['after_id=nobody', [], false],
    ['limit=1&before_id=c', ['b'], true],
    ['before_id=a', [], false],
    ['limit=-1', ['a'], true],
    ['limit=x&%', ['a', 'b', 'c'], false],
  ] as const) {
    const page = await ask({ 'anthropic-version': '1' }, query)
    t.strictSame(
      page.data.map(({ id }: Json) => id),
      ids,
      query,
    )
    t.match(page, { has_more: more, first_id: ids[0] ?? null, last_id: ids.at(-1) ?? null })
  }
})

await t.test(
  'an id may be written with its slashes or without, in front of the gateway itself',
  async (t) => {
    const names = ['accounts/acme/models/llama', 'ü x', 'a:b', '50%', 'models/gemini', 'UPPER']
    const gateway = await testGateway(t, {
      files: {
        '50-llm.yaml': `plugin: llm
providers:
  - {name: openai, dialect: openai, base_url: UPSTREAM/v1, api_key: sk-upstream, models: ${JSON.stringify(names)}}
`,
      },
    })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const { json } = await gateway.call(bot, 'GET', '/v1/models')
    t.strictSame(
      json.data.map(({ id }: Json) => id),
      names,
    )
    for (const id of names) {
      const raw = id.split('/').map(encodeURIComponent).join('/')
      for (const path of [encodeURIComponent(id), raw, `openai/${raw}`]) {
        const { status, json } = await gateway.call(bot, 'GET', `/v1/models/${path}`)
        t.match({ status, json }, { status: 200, json: { object: 'model' } }, path)
      }
      const body = { model: id, messages: [] }
      t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body })).status, 200, id)
      t.match(gateway.upstream.seen.at(-1)?.body.toString(), JSON.stringify(id))
    }
  },
)

async function begunStage(t: Parameters<typeof catalogueStage>[0], url: string) {
  const stage = catalogueStage(t, [openai(url, { models: ['*'] })])
  await stage.round()
  return stage
}
