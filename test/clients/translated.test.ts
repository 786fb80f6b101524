import { APIError } from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import t from 'tap'
import { anthropicOf, caught, mockProvider, openaiOf, outcomesOf, SAID } from '../support/clients/sdk.ts'
import { onlyProvider } from '../support/clients/turns.ts'
import { testGateway } from '../support/gateway.ts'
import { begin, callBlock, finish, textBlock } from '../support/llm/translate.ts'
import type { Answer } from '../support/upstream.ts'

const model = 'claude-opus-5'
const messages = [{ role: 'user' as const, content: 'hi' }]

await t.test('§4 clients of OpenAI call a model that a provider of the Messages API serves', async (t) => {
  const { mock, files } = await mockProvider(t)
  const gateway = await testGateway(t, { files })
  const client = openaiOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))

  const chat = await client.chat.completions.create({ model, messages })
  t.match(chat, { model, choices: [{ finish_reason: 'stop', message: { content: SAID } }] })
  const response = await client.responses.create({ model, input: 'hi' })
  t.match(response, { model, output_text: SAID, status: 'completed' })

  let said = ''
  for await (const chunk of await client.chat.completions.create({ model, messages, stream: true }))
    said += chunk.choices[0]?.delta.content ?? ''
  t.equal(said, SAID)
  const stream = client.responses.stream({ model, input: 'hi' })
  t.match(await stream.finalResponse(), { output_text: SAID, usage: { output_tokens: 9 } })

  t.same(
    mock
      .getRequests()
      .filter(({ method }) => method === 'POST')
      .map(({ path }) => path),
    Array.from({ length: 4 }, () => '/v1/messages'),
  )
  const outcomes = await outcomesOf(gateway, 'anthropic')
  t.equal(outcomes.length, 4)
  for (const { detail } of outcomes)
    t.match(detail, {
      translated: {
        to: 'messages',
        dropped: Array,
        carried: ['max_tokens_set'],
        sent_sha256: /^[\da-f]{64}$/,
      },
      tokens: { output: 9 },
    })
})

const FILE = (more: string, top = ''): Record<string, string> => ({
  '50-llm.yaml': `plugin: llm\n${top}providers:\n  - {name: claude, dialect: anthropic, base_url: UPSTREAM/v1, api_key: sk-only-there, models: ["*"], ${more}}\n`,
})

/** Answers as the Messages API does, with these bytes. */
const streams =
  (text: string): Answer =>
  (res) => {
    res.setHeader('content-type', 'text/event-stream')
    res.end(text)
  }

await t.test(
  '§4 what a translated call cannot be told is refused by name, before anything is sent',
  async (t) => {
    const gateway = await testGateway(t, { files: FILE('cache: off') })
    const client = openaiOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
    const tools = [{ type: 'web_search' as const }]
    const error = await caught(client.responses.create({ model, input: 'hi', tools }), OpenAI.BadRequestError)
    t.match(error, { code: 'translation_lossy', message: /cannot be told of tools\[0\] \(hosted_tools\)/ })
    t.same(gateway.upstream.seen, [])
    await gateway.close()
    t.match(
      (await gateway.rows()).filter(({ action }) => action.startsWith('egress_llm_chat')),
      [
        { status: 'allowed' },
        { status: 'error', detail: { reason: 'translation_lossy', losses: ['hosted_tools'] } },
      ],
    )
  },
)

await t.test('§4 a loss that an operator accepts is left out, and the row and a header say so', async (t) => {
  const gateway = await testGateway(t, {
    files: FILE('lossy: [hosted_tools], cache: off, aliases: {planner: claude-opus-5}'),
  })
  const client = openaiOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
  gateway.upstream.answer = streams(
    begin({ input_tokens: 1 }) + textBlock(0, 'a') + callBlock(1, 'c', 'f', '{}') + finish('tool_use'),
  )
  const tools = [
    { type: 'web_search' as const },
    { type: 'function' as const, name: 'f', parameters: {}, strict: null },
  ]
  const headers = { 'openai-beta': 'x=1', 'idempotency-key': 'k' }
  const { data, response } = await client.responses
    .create({ model: 'planner', input: 'hi', tools, stream: true, store: false }, { headers })
    .withResponse()
  const types: string[] = []
  for await (const { type } of data) types.push(type)
  t.equal(types.at(-1), 'response.completed')
  t.equal(
    response.headers.get('x-sallyport-translated'),
    'responses>messages; dropped=hosted_tools; carried=max_tokens_set',
  )
  const [sent] = gateway.upstream.seen
  t.match(sent, {
    url: '/v1/messages',
    headers: { 'x-api-key': 'sk-only-there', 'anthropic-version': '2023-06-01' },
  })
  t.equal(sent?.headers['openai-beta'], undefined)
  t.same(JSON.parse(String(sent?.body)), {
    ...{ model: 'claude-opus-5', max_tokens: 32_000, stream: true },
    messages: [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }],
    tools: [{ name: 'f', input_schema: {} }],
  })
})

await t.test('§4 a stream that breaks off, and an answer that cannot be told, end as failures', async (t) => {
  const gateway = await testGateway(t, { files: FILE('cache: off') })
  const client = openaiOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
  client.maxRetries = 0
  const read = async (): Promise<string> => {
    let text = ''
    for await (const chunk of await client.chat.completions.create({ model, messages, stream: true }))
      text += chunk.choices[0]?.delta.content ?? ''
    return text
  }
  gateway.upstream.answer = streams(begin() + textBlock(0, 'half'))
  t.match(await caught(read(), OpenAI.APIError), { message: /broke off/ })

  gateway.upstream.answer = (res) => {
    res.setHeader('content-type', 'application/json')
    res.end('{"type":"message","id":"m","content":[{"type":"server_tool_use"}],"stop_reason":"end_turn"}')
  }
  const chat = client.chat.completions.create({ model, messages })
  t.match(await caught(chat, OpenAI.APIError), { status: 502, code: 'provider_failed' })

  gateway.upstream.answer = (res) => {
    res.statusCode = 400
    res.setHeader('content-type', 'application/json')
    const error = { type: 'invalid_request_error', message: 'prompt is too long: 2 tokens > 1 maximum' }
    res.end(JSON.stringify({ type: 'error', error }))
  }
  const full = client.chat.completions.create({ model, messages })
  t.match(await caught(full, OpenAI.APIError), {
    status: 400,
    code: 'context_length_exceeded',
    message: /prompt is too long/,
  })
  await gateway.close()
  t.same(
    (await gateway.rows())
      .filter(({ detail }) => detail.upstream_status !== undefined)
      .map(({ status, detail }) => [status, detail.reason]),
    [
      ['truncated', 'provider_failed'],
      ['error', 'provider_failed'],
      ['error', 'provider_refused'],
    ],
  )
})

/** The words of servers of Chat Completions about a context that is full. */
const FULL: readonly object[] = [
  { code: 'context_length_exceeded', message: 'Your input exceeds it.' },
  { code: 400, message: "This model's maximum context length is 8192 tokens. However, you requested 9000." },
  { code: 400, message: 'The decoder prompt (length 9) is longer than the maximum model length of 8.' },
  {
    code: 400,
    message: 'request (9 tokens) exceeds the available context size (8 tokens), try increasing it',
  },
  { code: 400, message: 'The input token count (9) exceeds the maximum number of tokens allowed (8).' },
]

await t.test('§4 a context that is full is said as each client knows it, whoever said it', async (t) => {
  const gateway = await testGateway(t, { files: onlyProvider('chat', '*') })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const refused = async (error: object, path: string, body: object) => {
    gateway.upstream.answer = (res) => {
      res.statusCode = 400
      res.setHeader('content-type', 'application/json')
      res.end(JSON.stringify({ error }))
    }
    const { status, json } = await gateway.call(bot, 'POST', path, { body: { model, ...body } })
    t.equal(status, 400)
    return json.error
  }
  for (const error of FULL) {
    const claude = await refused(error, '/v1/messages', { messages, max_tokens: 9 })
    t.match(claude, { type: 'invalid_request_error', message: /^prompt is too long: / })
    const codex = await refused(error, '/v1/responses', { input: 'hi', store: false })
    t.match(codex, { code: 'context_length_exceeded' }, JSON.stringify(error))
  }
  const other = { code: 400, message: 'the context of this tool is unknown' }
  t.match(await refused(other, '/v1/messages', { messages, max_tokens: 9 }), { message: other.message })
})

await t.test(
  '§4 a long body is translated beside the loop, and one that is too long is refused',
  async (t) => {
    const gateway = await testGateway(t, { files: FILE('cache: off') })
    const client = openaiOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
    gateway.upstream.answer = streams(begin({ input_tokens: 1 }) + textBlock(0, 'a') + finish('end_turn'))
    const ask = (content: string) =>
      client.chat.completions.create({ model, messages: [{ role: 'user', content }], stream: true })
    for await (const chunk of await ask('é "x" '.repeat(500_000))) t.equal(chunk.model, model)
    const [sent] = gateway.upstream.seen
    t.match(JSON.parse(String(sent?.body)).messages[0].content[0].text, /^(?:é "x" ){500000}$/)
    t.match(await caught(ask('a'.repeat(16 * 1024 * 1024)), OpenAI.APIError), {
      status: 413,
      code: 'body_too_large',
    })
    const { text: metrics } = await gateway.admin('GET', '/metrics')
    t.match(metrics, 'sallyport_translated_total{from="chat",to="messages"} 1')
  },
)

await t.test('§4 a provider that keeps its answer open does not hold the caller for long', async (t) => {
  const gateway = await testGateway(t, {
    files: {
      '50-llm.yaml':
        'plugin: llm\nproviders:\n  - {name: local, dialect: openai, speaks: [chat], server: vllm, base_url: UPSTREAM/v1, api_key: sk-only-there, models: ["*"]}\n',
    },
  })
  const client = anthropicOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
  const open = (...choices: readonly object[]): Promise<void> => {
    const { promise, resolve } = Promise.withResolvers<void>()
    gateway.upstream.answer = (res) => {
      res.setHeader('content-type', 'text/event-stream')
      for (const choice of choices)
        res.write(`data: ${JSON.stringify({ id: 'c', choices: [{ index: 0, ...choice }] })}\n\n`)
      res.on('close', resolve)
    }
    return promise
  }
  const said = { delta: { role: 'assistant', content: 'a STOP b' } }
  const request = { model, messages, max_tokens: 5 }
  const ended = open(said, { delta: {}, finish_reason: 'stop' })
  t.match(await client.messages.stream(request).finalMessage(), {
    content: [{ text: 'a STOP b' }],
    ...{ stop_reason: 'end_turn', usage: { output_tokens: 0 } },
  })
  await ended
  // More of them than the provider takes.
  const stop_sequences = ['STOP', '1', '2', '3', '4']
  const stopped = open(said)
  t.match(await client.messages.stream({ ...request, stop_sequences }).finalMessage(), {
    content: [{ text: 'a ' }],
    stop_reason: 'stop_sequence',
  })
  await stopped
  await gateway.close()
  const rows = (await gateway.rows()).filter(({ detail }) => detail.upstream_status !== undefined)
  t.match(
    rows.map(({ status, detail }) => [status, detail.tokens_unknown, detail.translated]),
    [
      ['success', 'not_stated', {}],
      ['success', 'cut_off', { stopped_by: 'gateway' }],
    ],
  )
})

await t.test(
  '§5 the tokens of a Messages request are counted by Responses, and told as its own',
  async (t) => {
    const gateway = await testGateway(t)
    const client = anthropicOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
    let said: object = { object: 'response.input_tokens', input_tokens: 42 }
    gateway.upstream.answer = (res) => {
      res.setHeader('content-type', 'application/json')
      res.end(JSON.stringify(said))
    }
    const count = () => client.messages.countTokens({ model: 'gpt-test', system: 's', messages })
    t.match(await count(), { input_tokens: 42 })
    const [seen] = gateway.upstream.seen
    t.equal(seen?.url, '/v1/responses/input_tokens')
    const message = (role: string, text: string) => ({
      ...{ type: 'message', role },
      content: [{ type: 'input_text', text }],
    })
    const sent = { model: 'gpt-test', input: [message('system', 's'), message('user', 'hi')] }
    t.same(JSON.parse(String(seen?.body)), sent, 'what does not count is not sent')
    said = { object: 'response.input_tokens' }
    client.maxRetries = 0
    t.match((await caught(count(), APIError)).status, 502)
    await gateway.close()
    const ended = (await gateway.rows()).filter(({ detail }) => detail.attempts !== undefined)
    t.match(ended, [
      {
        status: 'success',
        detail: { translated: { from: 'messages', to: 'responses' }, tokens_unknown: undefined },
      },
      { status: 'error', detail: { reason: 'provider_failed' } },
    ])
  },
)

await t.test('§4 with translate: off, such a call is refused', async (t) => {
  const gateway = await testGateway(t, { files: FILE('cache: off', 'translate: off\n') })
  const client = openaiOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
  const chat = client.chat.completions.create({ model, messages })
  t.match(await caught(chat, OpenAI.APIError), { status: 400, code: 'dialect_translation_unavailable' })
})
