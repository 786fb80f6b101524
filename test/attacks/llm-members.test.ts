import t from 'tap'
import { foldedName } from '../../plugins/json-body/json-body.ts'
import { READ_MEMBERS, ROUTING_MEMBERS } from '../../proxy/llm/dialects/routing-members.ts'
import { CHAT, PLUGIN_FILES, testGateway } from '../support/gateway.ts'

/** Ids that are no question of this file. */
const SHARED = '\n    shared_ids: [c, conv_1, "pmpt_*", resp_1]'
const ALLOWING = `${PLUGIN_FILES['50-llm.yaml']?.replace(/models: .*/g, `$&${SHARED}`)}  - name: router
    dialect: openai
    base_url: UPSTREAM/v1
    api_key: sk-upstream-router
    models: ["routed-*"]
    allow_members: [provider, metadata.tags]
    refuse_members: [cache, options.dear, x_*]
`

const gateway = await testGateway(t, { files: { '50-llm.yaml': ALLOWING } })
const bot = await gateway.enroll('bot', ['llm.chat'])

const call = (body: string | Record<string, unknown>, path = '/v1/chat/completions') =>
  gateway.call(bot, 'POST', path, { body })

/** Sends a text as a body, and tells what the provider got of it; null: nothing. */
async function sent(body: string): Promise<string | null> {
  const before = gateway.upstream.seen.length
  const { status } = await call(body)
  const [last] = gateway.upstream.seen.slice(before)
  return status === 200 ? String(last?.body) : null
}

/** Every name that a reader who ignores case takes for this one: one letter at a time, and all of them. */
function foldingOnto(name: string): readonly string[] {
  const odd = { s: ['S', '\u017f'], k: ['K', '\u212a'], i: ['I', '\u0130', '\u0131'] }
  const spellings = (letter: string): readonly string[] =>
    letter in odd ? odd[letter as keyof typeof odd] : [letter.toUpperCase()]
  const letters = name.split('')
  return [
    name.toUpperCase(),
    ...letters.flatMap((letter, at) =>
      spellings(letter).map((one) => [...letters.slice(0, at), one, ...letters.slice(at + 1)].join('')),
    ),
  ].filter((one) => one !== name)
}

await t.test(
  'H1 another spelling of a member that is judged is refused, beside it or in its place',
  async (t) => {
    const seen = gateway.upstream.seen.length
    for (const name of READ_MEMBERS) {
      for (const odd of foldingOnto(name)) {
        t.equal(foldedName(odd), name, `a reader that ignores case takes ${odd} for ${name}`)
        for (const beside of [`"model":"gpt-4o",`, '']) {
          const answer = await call(`{${beside}"messages":[],"${odd}":"gpt-dear"}`)
          t.match(answer, { status: 400, json: { reason: 'body_invalid' } }, `${odd}, beside: ${beside}`)
          t.match(answer.json.message, odd, 'the sentence names the member')
        }
      }
    }
    for (const body of [
      '{"model":"gpt-4o","model":"gpt-dear"}',
      '{"model":"gpt-4o","mode\\u006c":"gpt-dear"}',
      '{"model":"gpt-4o","model\\u0000":"gpt-dear"}',
      '{"model":"gpt-4o","model\u0000":"gpt-dear"}',
      '{"mod\\u0065l":"gpt-4o"}',
      '{"model":"gpt-4o","str\\u0065am":true}',
      '{"model":"gpt-4o","\\u017ftream":true}',
      '{"model":"gpt-4o","stream":false,"stream":true}',
      '{"model":"gpt-4o","model\\ud800":"gpt-dear"}',
      '{"model":"gpt-4o","api_base\\u0000":"https://dear.example"}',
      '{"model":"gpt-4o","metadata":{"tags\\u0000":["dear"]}}',
      '{"model":"gpt-4o","metadata":{"tags":["dear"]},"metadata":{}}',
      '{"model":"gpt-4o\\u0000gpt-dear"}',
      '{"model":"gpt-4o,gpt-dear"}',
      '{"model":"gpt-4o "}',
      '{"model":"\u00a0gpt-4o"}',
    ]) {
      t.match(await call(body), { status: 400, json: { reason: 'body_invalid' } }, body)
    }
    t.equal(gateway.upstream.seen.length, seen, 'nothing went to a provider')
  },
)

await t.test('H1 an honest body goes on byte for byte, whatever else is in it', async (t) => {
  for (const body of [
    '{"model":"gpt-4o","messages":[{"Model":"x","STREAM":true}],"Temperature":0.5 , "x-own":{"modeL":1}}',
    '{"model":"gpt-4o","messages":[],"metadata": {"ticket\\/id": "1"}}',
    '{"model":"gpt-4o","messages":[],"ticket\\/id":1,"na\\u00efve":{"\\u0061":1}}',
    '{"model":"gpt-4o","messages":[],"metadata":{"a":1,"a":2},"user":"x","user":"y"}',
    '{"model":"gpt-4o","messages":[{"role":"user","role":"user","content":{"\\"":1}}],"tools":[]}',
    '{"messages":[], "model_":"x", "models_seen":1, "ſ":"K", "model":"gpt-4o","top_k":4}',
  ]) {
    t.equal(await sent(body), body)
  }
})

await t.test('a stored prompt may name the model: Responses alone may be without one', async (t) => {
  for (const body of [
    '{"prompt":{"id":"pmpt_1"}}',
    '{"prompt":{"id":"pmpt_1"}, "model":null,"stream":false}',
  ]) {
    t.match(await call(body, '/v1/responses'), { status: 200 })
    t.match(gateway.upstream.seen.at(-1), { url: '/v1/responses', body: Buffer.from(body) })
  }
  const [row] = await gateway.rows({ status: 'success', limit: 1 })
  t.match(row, { model: null, provider: 'openai' })
  for (const model of ['""', '1', '["gpt-4o"]', '"gpt-4o,gpt-dear"']) {
    const answer = await call(`{"prompt":{"id":"pmpt_1"},"model":${model}}`, '/v1/responses')
    t.match(answer, { status: 400, json: { reason: 'body_invalid' } }, model)
  }
  for (const path of ['/v1/chat/completions', '/v1/embeddings', '/v1/messages']) {
    t.match(await call('{"prompt":{"id":"pmpt_1"}}', path), { status: 400, json: { reason: 'body_invalid' } })
  }
})

await t.test('H1 a body with more outermost members than any API has is refused', async (t) => {
  const members = (count: number) => Array.from({ length: count }, (_, at) => `,"m${at}":0`).join('')
  t.match(await call(`{"model":"gpt-4o"${members(1000)}}`), { status: 400, json: { reason: 'body_invalid' } })
  t.equal((await call(`{"model":"gpt-4o"${members(999)}}`)).status, 200)
})

await t.test('H1e a refused member is a row that says who refused it', async (t) => {
  await call({ ...CHAT, fallbacks: [{ model: 'gpt-dear' }], timeout: 1e-5 })
  const [row] = await gateway.rows({ status: 'invalid', limit: 1 })
  const { principal_id: id, detail } = row ?? {}
  t.match({ id, detail }, { id: bot.id, detail: { reason: 'member_refused', refused_by: 'llm_members' } })
})

await t.test('H1e a member that a router behind us acts on is refused by its name', async (t) => {
  const seen = gateway.upstream.seen.length
  for (const rule of ROUTING_MEMBERS) {
    const name = rule.replace('*', 'a')
    const [outer = '', inner] = name.split('.')
    const value = inner === undefined ? [{ model: 'gpt-dear' }] : { [inner]: ['dear'] }
    const answer = await call({ ...CHAT, seconds: 1e-5, [outer]: value })
    t.match(answer, { status: 400, json: { reason: 'member_refused', detail: { member: name } } }, name)
    t.match(answer.json.message, name)
  }
  for (const escaped of [
    '"api\\u005fbase":"x"',
    '"metadata":{"t\\u0061gs":[]}',
    '"fallbacks":[],"fallbacks":[]',
  ]) {
    const answer = await call(`{"model":"gpt-4o",${escaped}}`)
    t.match(answer, { status: 400, json: { reason: 'member_refused' } }, `${escaped}, however it is written`)
  }
  const claude = { model: 'claude-x', max_tokens: 1, messages: [], fallbacks: [] }
  t.match(await call(claude, '/v1/messages'), { status: 400, json: { reason: 'member_refused' } })
  for (const name of [
    'apiBase',
    'base-url',
    'contextWindowFallbacks',
    'fallback_model',
    'guardrailConfig',
    'Fallbacks',
    'FALLBACK\u017f',
    'providerOptions',
    'dataSources',
    'Mock_Response',
    'mockResponse',
    'mOcK_response',
    'aws-region-name',
    'inputCostPerToken',
  ]) {
    t.match(await call({ ...CHAT, [name]: [] }), { status: 400, json: { reason: 'member_refused' } }, name)
  }
  const tagged = { ...CHAT, Metadata: { team: 'x', TAGS: ['dear'] } }
  t.match(await call(tagged), { status: 400, json: { detail: { member: 'Metadata.TAGS' } } })
  for (const metadata of ['{"tags":["dear"]}', ' \n{"t\\u0061gs":["dear"]}']) {
    const answer = await call({ ...CHAT, metadata })
    t.match(answer, { status: 400, json: { reason: 'member_refused', detail: { member: 'metadata' } } })
  }
  const padding = Object.fromEntries(Array.from({ length: 1_000 }, (_, at) => [`k${at}`, '']))
  const hidden = await call({ ...CHAT, metadata: { ...padding, tags: ['dear'] } })
  t.match(hidden, { status: 400, json: { reason: 'body_invalid' } }, 'not behind more members than are read')
  t.equal(gateway.upstream.seen.length, seen, 'nothing went to a provider')
})

await t.test('H1e no member of the vendors’ own APIs is refused', async (t) => {
  const own = {
    audio: {},
    background: false,
    cache_control: {},
    container: 'c',
    context_management: {},
    conversation: 'conv_1',
    dimensions: 1,
    encoding_format: 'float',
    frequency_penalty: 0,
    functions: [],
    include: [],
    input: '',
    instructions: '',
    logit_bias: {},
    max_completion_tokens: 1,
    max_output_tokens: 1,
    max_tokens: 1,
    max_tool_calls: 1,
    mcp_servers: [],
    messages: [],
    metadata: { user_id: 'u', tag: 'x' },
    modalities: [],
    n: 1,
    output_config: {},
    parallel_tool_calls: true,
    prediction: {},
    previous_response_id: 'resp_1',
    prompt: {},
    prompt_cache_key: 'k',
    prompt_cache_retention: '24h',
    reasoning: {},
    reasoning_effort: 'low',
    response_format: {},
    safety_identifier: 's',
    seed: 1,
    service_tier: 'auto',
    stop_sequences: [],
    store: false,
    stream_options: { include_usage: true },
    system: '',
    temperature: 0,
    text: {},
    thinking: {},
    tool_choice: 'auto',
    tools: [{ api_key: 'x', fallbacks: [] }],
    top_k: 1,
    top_logprobs: 1,
    top_p: 1,
    truncation: 'auto',
    user: 'u',
    verbosity: 'low',
    web_search_options: {},
    // Of servers that run models themselves.
    chat_template_kwargs: {},
    guided_json: {},
    guided_choice: [],
    keep_alive: 1,
    min_p: 0,
    repetition_penalty: 1,
  }
  t.equal((await call({ ...CHAT, ...own })).status, 200)
  t.equal((await call({ ...CHAT, metadata: 'a note' })).status, 200)
  t.equal((await call({ ...own, model: 'claude-x' }, '/v1/messages')).status, 200)
})

await t.test('H1e an operator allows and refuses members for each provider', async (t) => {
  const routed = { model: 'routed-1', messages: [] }
  t.equal((await call({ ...routed, provider: { order: ['x'] }, metadata: { tags: ['x'] } })).status, 200)
  for (const more of [
    { fallbacks: [] },
    { cache: {} },
    { options: { dear: 1 } },
    { x_any: 1 },
    { 'x-any': 1 },
    { Cache: 1 },
  ]) {
    const answer = await call({ ...routed, ...more })
    t.match(answer, { status: 400, json: { reason: 'member_refused' } }, JSON.stringify(more))
  }
  t.equal((await call({ ...routed, options: { cheap: 1 }, x: 1, xtc_threshold: 1 })).status, 200)
  t.equal((await call({ ...CHAT, cache: {} })).status, 200, 'another provider may get it')
})
