import t from 'tap'
import { catalogueStage } from '../../support/llm/catalogue.ts'
import { anthropic, openai } from '../../support/llm/facts.ts'
import { answer, rawUpstream } from '../../support/llm/upstreams.ts'
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
    openai(one.url, { models: ['gpt-*', 'acme/llama'], aliases: { fast: 'gpt-4o' } }),
    anthropic(two.url),
    openai(one.url, { name: 'keyless', api_key: '', models: ['literal'] }),
  ])
  await round()
  const gpt = { id: 'gpt-4o', object: 'model', created: 1_715_367_049, owned_by: 'openai' }
  t.strictSame(await get({ id: 'gpt-4o' }), gpt)
  t.strictSame(await get({ id: 'fast' }), { ...gpt, id: 'fast', created: 0 })
  const claude = {
    type: 'model',
    id: 'claude-x',
    display_name: 'Claude X',
    created_at: '2025-10-01T00:00:00Z',
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

async function begunStage(t: Parameters<typeof catalogueStage>[0], url: string) {
  const stage = catalogueStage(t, [openai(url, { models: ['*'] })])
  await stage.round()
  return stage
}
