import t from 'tap'
import { listModels } from '../../../proxy/llm/models.ts'
import { openUpstream } from '../../../proxy/llm/upstream/client.ts'
import { anthropic, arrival, openai, options, receive } from '../../support/llm/facts.ts'
import { answer, nobody, rawUpstream, type Wire } from '../../support/llm/upstreams.ts'

const upstream = openUpstream()
t.teardown(() => upstream.close())

type File = Parameters<typeof options>
type List = ReturnType<typeof listModels>

const lister = (providers: File[0], more: File[1] = {}): List =>
  listModels(options(providers, more), upstream)

const ask = async (list: List, at = 0, headers = {}) => {
  const reply = await list(arrival({ path: '/v1/models', at, headers }))
  t.equal(reply.status, 200)
  return JSON.parse((await receive(reply)).text) as { data: { id: string }[] }
}
const ids = async (list: List, at = 0) => (await ask(list, at)).data.map(({ id }) => id)

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
    const list = lister([
      openai(one.url, { models: ['gpt-*', 'o9'], aliases: { fast: 'gpt-4o' } }),
      anthropic(two.url),
      openai(one.url, { name: 'keyless', api_key: '', models: ['secret-*', 'literal'] }),
    ])
    t.strictSame(await ask(list, 0, { authorization: 'Bearer canary', 'x-stainless-os': 'canary' }), {
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
  const list = lister([anthropic(url, { aliases: { quick: 'claude-x' } })])
  t.strictSame(await ask(list, 0, { 'anthropic-version': '2023-06-01' }), {
    data: [
      { type: 'model', id: 'quick', display_name: 'quick', created_at: '1970-01-01T00:00:00Z' },
      { type: 'model', id: 'claude-x', display_name: 'Claude X', created_at: '2025-10-01T00:00:00Z' },
    ],
    has_more: false,
    first_id: 'quick',
    last_id: 'claude-x',
  })
  t.match(await ask(lister([]), 0, { 'anthropic-version': '1' }), { data: [], first_id: null, last_id: null })
})

await t.test('§3 a provider is asked once a minute, by one request for all who wait', async (t) => {
  const { url, seen } = await rawUpstream(t, (socket) => socket.write(answer(200, OPENAI_LIST)))
  const list = lister([openai(url)])
  await Promise.all([ids(list), ids(list), ids(list)])
  await ids(list, 59_999)
  t.equal(seen.length, 1)
  await ids(list, 60_000)
  t.equal(seen.length, 2)
})

await t.test(
  '§3 a default provider without patterns is listed whole, another one by its aliases alone',
  async (t) => {
    const { url } = await rawUpstream(t, (socket) => socket.write(answer(200, OPENAI_LIST)))
    t.strictSame(await ids(lister([openai(url, { models: [] })], { default_provider: 'openai' })), [
      'gpt-4o',
      'gpt-5',
      'whisper-1',
    ])
    t.strictSame(await ids(lister([openai(url, { models: [], aliases: { fast: 'x' } })])), ['fast'])
  },
)

await t.test(
  '§3 a passthrough provider is never asked: the list would be one caller’s and go to all',
  async (t) => {
    const { url, connections } = await rawUpstream(t, () => {})
    t.strictSame(await ids(lister([openai(url, { auth: 'passthrough', models: ['gpt-*', 'gpt-4o'] })])), [
      'gpt-4o',
    ])
    t.equal(connections(), 0)
  },
)

const LITERAL = { models: ['gpt-*', 'o9'], aliases: { fast: 'gpt-4o' } }

for (const [name, text] of [
  ['answers 500', answer(500, '{}')],
  ['answers with no JSON', answer(200, '<p>')],
  ['answers with no list', answer(200, '{"data":{}}')],
  ['answers with too much', answer(200, `{"data":["${'x'.repeat(4 * 1024 * 1024)}"]}`)],
  ['redirects', answer(302, '', { location: 'http://127.0.0.1:1/' })],
] as const) {
  await t.test(
    `§3 a provider that ${name} is listed with what its file names, and asked again after 5 s`,
    async (t) => {
      let healthy = false
      const { url, seen } = await rawUpstream(t, (socket: { write: (text: string) => unknown }, _: Wire) =>
        socket.write(healthy ? answer(200, OPENAI_LIST) : text),
      )
      const list = lister([openai(url, LITERAL)])
      t.strictSame(await ids(list), ['fast', 'o9'])
      t.strictSame(await ids(list, 4_999), ['fast', 'o9'])
      t.equal(seen.length, 1)
      healthy = true
      t.strictSame(await ids(list, 5_000), ['fast', 'o9', 'gpt-4o', 'gpt-5'])
    },
  )
}

await t.test('§3 a provider that is not there, or too slow, does not hold up the others', async (t) => {
  const slow = await rawUpstream(t, () => {})
  const good = await rawUpstream(t, (socket) => socket.write(answer(200, ANTHROPIC_LIST)))
  const list = lister([
    openai(await nobody(), LITERAL),
    openai(slow.url, { name: 'slow', models: ['x'], first_byte_timeout_ms: 20 }),
    anthropic(good.url),
  ])
  t.strictSame(await ids(list), ['fast', 'o9', 'x', 'claude-x'])
})
