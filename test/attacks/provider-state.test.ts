import t from 'tap'
import { openDatabase } from '../../db/engine.ts'
import { type Identity, PLUGIN_FILES, type TestGateway, testGateway } from '../support/gateway.ts'

const FILE = `${PLUGIN_FILES['50-llm.yaml']}  - name: twin
    dialect: openai
    base_url: UPSTREAM/v1
    api_key: sk-upstream-twin
    models: ["gpt-*", "twin-*"]
  - name: closed
    dialect: openai
    base_url: UPSTREAM/v1
    api_key: sk-upstream-closed
    state: refuse
    models: ["closed-*"]
  - name: open
    dialect: openai
    base_url: UPSTREAM/v1
    api_key: sk-upstream-open
    state: allow
    models: ["open-*"]
  - name: shared
    dialect: openai
    base_url: UPSTREAM/v1
    api_key: sk-upstream-shared
    shared_ids: ["pmpt_*", vs_ours]
    models: ["shared-*"]
`

/** A provider that keeps what it answers, for its account. */
const stored = (gateway: TestGateway): void => {
  let count = 0
  gateway.upstream.answer = (res, { url, body }) => {
    count += 1
    const { stream = false, conversation, model = 'gpt-test', thread } = JSON.parse(body.toString())
    if (url.endsWith('/messages')) {
      const message = {
        ...{ id: `msg_${count}`, type: 'message', role: 'assistant', model, stop_reason: 'end_turn' },
        content: thread ? [] : [{ type: 'text', text: 'hello' }],
        container: { id: `container_${count}`, expires_at: '2030-01-01T00:00:00Z' },
        usage: { input_tokens: 1, output_tokens: 1 },
      }
      res.setHeader('content-type', 'application/json').end(JSON.stringify(message))
      return
    }
    const items = [
      { type: 'reasoning', id: `rs_${count}`, summary: [] },
      { type: 'code_interpreter_call', id: `ci_${count}`, container_id: `cntr_${count}`, outputs: null },
    ]
    const response = {
      ...{ id: `resp_${count}`, object: 'response', status: 'completed', model, store: true, output: items },
      ...(conversation && { conversation: { id: conversation.id ?? conversation } }),
      usage: { input_tokens: 1, output_tokens: 1, total_tokens: 2 },
    }
    if (!stream) {
      res.setHeader('content-type', 'application/json').end(JSON.stringify(response))
      return
    }
    res.setHeader('content-type', 'text/event-stream')
    const event = (type: string, more: object) =>
      res.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...more })}\n\n`)
    event('response.created', { response: { ...response, status: 'in_progress', output: [], usage: null } })
    for (const item of items) event('response.output_item.done', { item })
    event('response.completed', { response: { ...response, output: [] } })
    res.end()
  }
}

const gateway = await testGateway(t, { files: { '50-llm.yaml': FILE } })
stored(gateway)
const alice = await gateway.enroll('alice', ['llm.chat'])
const bob = await gateway.enroll('bob', ['llm.chat'])

const respond = async (who: Identity, more: object, at: TestGateway = gateway) =>
  at.call(who, 'POST', '/v1/responses', { body: { model: 'gpt-test', input: 'hi', ...more } })
const refused = (member: string, provider = 'openai') => ({
  status: 400,
  json: { reason: 'provider_state_refused', detail: { member, provider } },
})
const idIn = (text: string): string => /resp_\d+/.exec(text)?.[0] ?? ''

for (const stream of [false, true]) {
  await t.test(
    `H11 what one agent was answered is its own alone, ${stream ? 'streamed' : 'whole'}`,
    async (t) => {
      const first = await respond(alice, { stream })
      t.equal(first.status, 200)
      const id = idIn(first.text)
      const number = id.slice('resp_'.length)
      const names: readonly (readonly [string, object])[] = [
        ['previous_response_id', { previous_response_id: id }],
        [
          'input[1].id',
          {
            input: [
              { role: 'user', content: 'x' },
              { type: 'item_reference', id: `rs_${number}` },
            ],
          },
        ],
        ['input[0].id', { input: [{ type: 'reasoning', id: `rs_${number}`, summary: [] }] }],
        ['tools[0].container', { tools: [{ type: 'code_interpreter', container: `cntr_${number}` }] }],
      ]
      const before = gateway.upstream.seen.length
      // At once: on PostgreSQL each waits for what another replica may be writing.
      const asked = names.flatMap(([member, more]) =>
        [false, true].map(async (again) => ({
          member,
          answer: await respond(bob, { ...more, stream: again }),
        })),
      )
      for (const { member, answer } of await Promise.all(asked))
        t.match(answer, refused(member), `bob: ${member}`)
      t.equal(gateway.upstream.seen.length, before, 'no provider was asked')
      for (const [member, more] of names) {
        for (const again of [false, true])
          t.equal((await respond(alice, { ...more, stream: again })).status, 200, `alice: ${member}`)
      }
    },
  )
}

await t.test('H11 an id that no answer has stated is nobody’s, wherever it stands', async (t) => {
  const unknown: readonly (readonly [string, string, object])[] = [
    ['/v1/responses', 'conversation', { conversation: 'conv_1' }],
    ['/v1/responses', 'conversation.id', { conversation: { id: 'conv_1' } }],
    ['/v1/responses', 'prompt.id', { prompt: { id: 'pmpt_1' } }],
    ['/v1/responses', 'request_id', { request_id: 'resp_1' }],
    [
      '/v1/responses',
      'input[0].content[0].file_id',
      { input: [{ content: [{ type: 'input_file', file_id: 'f' }] }] },
    ],
    ['/v1/responses/compact', 'previous_response_id', { previous_response_id: 'resp_9' }],
    ['/v1/responses/input_tokens', 'previous_response_id', { previous_response_id: 'resp_9' }],
    [
      '/v1/chat/completions',
      'messages[0].audio.id',
      { messages: [{ role: 'assistant', audio: { id: 'a' } }] },
    ],
    [
      '/v1/llm/chat',
      'messages[0].content[0].file.file_id',
      { messages: [{ content: [{ file: { file_id: 'f' } }] }] },
    ],
  ]
  const asked = unknown.map(async ([path, member, more]) => {
    const answer = await gateway.call(bob, 'POST', path, { body: { model: 'gpt-test', ...more } })
    return { path, member, answer }
  })
  for (const { path, member, answer } of await Promise.all(asked)) {
    t.match(answer, refused(member), `${path} ${member}`)
    t.match(answer.json.message, `${member} names what the provider openai keeps`)
  }
  const message = { model: 'claude-test', max_tokens: 9, messages: [] }
  const messages = (who: Identity, more: object) =>
    gateway.call(who, 'POST', '/v1/messages', { body: { ...message, ...more } })
  const first = (await messages(alice, { tools: [] })).json
  t.match(await messages(bob, { container: first.container.id }), refused('container', 'anthropic'))
  t.equal((await messages(alice, { container: { id: first.container.id } })).status, 200)
  const thread = (id: string) => ({ thread: { type: 'continue', previous_message_id: id } })
  t.match(
    await messages(alice, thread(first.id)),
    refused('thread.previous_message_id', 'anthropic'),
    'no thread',
  )
  const begun = (await messages(alice, { thread: { type: 'create' } })).json
  t.equal((await messages(alice, thread(begun.id))).status, 200)
  t.match(await messages(bob, thread(begun.id)), refused('thread.previous_message_id', 'anthropic'))
})

await t.test('H11 however it is written: twice, or with an escape, or with no type', async (t) => {
  const id = idIn((await respond(alice, {})).text)
  const written = [
    `{"model":"gpt-test","previous_response_id":"${id}","previous_response_id":null}`,
    `{"model":"gpt-test","previous_response_id":null,"previous_response_id":"${id}"}`,
    `{"model":"gpt-test","previous_response_\\u0069d":"${id}"}`,
    `{"model":"gpt-test","previous_response_id":"\\u0072${id.slice(1)}"}`,
    `{"model":"gpt-test","input":[{"id":"${id}"}]}`,
    `{"model":"gpt-test","input":[{"type":"message","type":"item_reference","id":"${id}","content":"x"}]}`,
    `{"model":"gpt-test","input":[{"type":"reasoning","encrypted_content":"","id":"${id}"}]}`,
  ]
  const headers = { 'content-type': 'application/json' }
  const asked = written.map(async (body) => ({
    body,
    answer: await gateway.call(bob, 'POST', '/v1/responses', { body, headers }),
  }))
  for (const { body, answer } of await Promise.all(asked))
    t.match(answer, { status: 400, json: { reason: /^(provider_state_refused|body_invalid)$/ } }, body)
  t.match(await respond(bob, { Previous_Response_Id: id }), { status: 400, json: { reason: 'body_invalid' } })
})

await t.test('§ content of the caller’s own names nothing', async (t) => {
  const parameters = { type: 'object', properties: { file_id: { type: 'string', default: 'x' } } }
  const own = {
    input: [
      { type: 'message', id: 'msg_x', role: 'assistant', content: [{ type: 'output_text', text: 'a' }] },
      { type: 'function_call', id: 'fc_x', call_id: 'c', name: 'f', arguments: '{"file_id":"x"}' },
      { type: 'reasoning', id: 'rs_x', summary: [], encrypted_content: 'gAAA' },
    ],
    tools: [{ type: 'function', name: 'f', parameters }],
    metadata: { file_id: 'x' },
    previous_response_id: null,
  }
  t.equal((await respond(bob, own)).status, 200)
  const used = { type: 'tool_use', id: 't', name: 'f', input: { file_id: 'x', container: 'y' } }
  const body = { model: 'claude-test', max_tokens: 9, messages: [{ role: 'assistant', content: [used] }] }
  t.equal((await gateway.call(bob, 'POST', '/v1/messages', { body })).status, 200)
})

await t.test('an operator refuses all, allows all, or shares ids by name', async (t) => {
  const id = idIn((await respond(alice, { model: 'closed-1' })).text)
  t.match(
    await respond(alice, { model: 'closed-1', previous_response_id: id }),
    refused('previous_response_id', 'closed'),
  )
  t.equal((await respond(bob, { model: 'open-1', previous_response_id: 'resp_of_alice' })).status, 200)
  const warned = gateway.log.filter(({ level, provider }) => level >= 40 && provider === 'open')
  t.match(warned, [{ msg: /any caller may name what another/ }], 'the start says so, once')
  const prompt = { model: 'shared-1', prompt: { id: 'pmpt_7' } }
  t.equal((await respond(bob, prompt)).status, 200)
  const tools = (id: string) => [{ type: 'file_search', vector_store_ids: ['vs_ours', id] }]
  t.equal((await respond(bob, { model: 'shared-1', tools: tools('vs_ours') })).status, 200)
  t.match(
    await respond(bob, { model: 'shared-1', tools: tools('vs_other') }),
    refused('tools[0].vector_store_ids[1]', 'shared'),
  )
})

await t.test(
  'a call goes to the provider that keeps what it names, and an id of one is none of another',
  async (t) => {
    const id = idIn((await respond(alice, { model: 'twin/gpt-test' })).text)
    t.equal((await respond(alice, { previous_response_id: id })).status, 200)
    const keys = gateway.upstream.seen.slice(-2).map(({ headers }) => headers.authorization)
    t.same(keys, ['Bearer sk-upstream-twin', 'Bearer sk-upstream-twin'], 'though another one comes first')
    t.match(
      await respond(alice, { model: 'shared-1', previous_response_id: id }),
      refused('previous_response_id', 'shared'),
    )
  },
)

await t.test(
  'H11 more ids than one request may name are refused, and none of them is looked up',
  async (t) => {
    const input = Array.from({ length: 1_001 }, (_, place) => ({ type: 'item_reference', id: `i_${place}` }))
    const answer = await respond(alice, { input })
    t.match(answer, {
      status: 400,
      json: { reason: 'provider_state_refused', message: /more than 1000 ids/ },
    })
  },
)

await t.test('a refusal is a row, and says nothing of the id', async (t) => {
  const { headers } = await respond(bob, { previous_response_id: 'resp_secret' })
  const rows = (await gateway.rows()).filter(({ request_id: id }) => id === headers['x-request-id'])
  t.match(rows, [
    { status: 'invalid', detail: { reason: 'provider_state_refused', refused_by: 'provider_state' } },
  ])
  t.equal(rows.length, 1)
  t.notMatch(JSON.stringify(rows), 'resp_secret')
})

await t.test('H11 it is known after a restart, and forgotten with the principal', async (t) => {
  const files = { '50-llm.yaml': FILE }
  const one = await testGateway(t, { files, verify: false })
  stored(one)
  const carol = await one.enroll('carol', ['llm.chat'])
  const id = idIn((await respond(carol, {}, one)).text)
  await one.close(0)
  const settings = { MCP_PROXY_DATA_DIR: one.settings.dataDir }
  const other = await testGateway(t, { files, settings })
  stored(other)
  t.equal((await respond(carol, { previous_response_id: id }, other)).status, 200)
  t.match(await respond(carol, { previous_response_id: 'resp_77' }, other), refused('previous_response_id'))
  const database = await openDatabase(other.settings.databaseUrl)
  const count = async (): Promise<number> =>
    (await database.kysely.selectFrom('provider_states').select('digest').execute()).length
  t.ok((await count()) >= 4, 'the response and what is in it')
  t.equal((await other.admin('POST', `/v1/admin/agents/${carol.id}/erase`)).status, 204)
  t.equal(await count(), 0)
  await database.close()
})
