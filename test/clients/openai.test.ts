import OpenAI from 'openai'
import t from 'tap'
import {
  answersOf,
  callsOf,
  caught,
  mockProvider,
  openaiOf,
  outcomesOf,
  SAID,
} from '../support/clients/sdk.ts'
import { testGateway } from '../support/gateway.ts'

const hello = (content = 'hi') => ({ model: 'gpt-test', messages: [{ role: 'user' as const, content }] })

await t.test('§4 the OpenAI SDK chats, embeds and lists models with its base URL changed', async (t) => {
  const { mock, files } = await mockProvider(t)
  const gateway = await testGateway(t, { files })
  const client = openaiOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))

  const chat = await client.chat.completions.create(hello())
  t.equal(chat.choices[0]?.message.content, SAID)
  t.match(chat._request_id, /^req_[0-9a-f]{32}$/, 'the SDK shows our request id')

  const response = await client.responses.create({ model: 'gpt-test', input: 'hi' })
  t.equal(response.output_text, SAID)

  const embedding = await client.embeddings.create({ model: 'text-embedding-3-small', input: 'hi' })
  t.same(embedding.data[0]?.embedding, [0.25, 0.5, 0.75])

  const models: string[] = []
  for await (const { id } of client.models.list()) models.push(id)
  t.same(models.toSorted(), ['claude-3-5-sonnet-20241022', 'gpt-4', 'gpt-4o', 'text-embedding-3-small'])

  t.match(await client.models.retrieve('gpt-4o'), { id: 'gpt-4o', object: 'model', owned_by: 'openai' })
  t.match(await client.models.retrieve('openai/gpt-4o'), { id: 'openai/gpt-4o' }, 'which it percent-encodes')
  const missing = await caught(client.models.retrieve('gpt-none'), OpenAI.NotFoundError)
  t.equal(missing.code, 'model_not_found')

  const calls = mock.getRequests().filter(({ method }) => method === 'POST')
  t.same(
    calls.map(({ path, response: { status } }) => [path, status]),
    [
      ['/v1/chat/completions', 200],
      ['/v1/responses', 200],
      ['/v1/embeddings', 200],
    ],
    'the provider got its own key, and the key of the client never',
  )
})

await t.test('§4 the OpenAI SDK streams: chat completions and responses', async (t) => {
  const { files } = await mockProvider(t)
  const gateway = await testGateway(t, { files })
  const client = openaiOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))

  const pieces: string[] = []
  const chunks = await client.chat.completions.create({
    ...hello(),
    stream: true,
    stream_options: { include_usage: true },
  })
  for await (const chunk of chunks) pieces.push(chunk.choices[0]?.delta.content ?? '')
  t.equal(pieces.join(''), SAID)
  t.ok(pieces.filter(Boolean).length > 5, 'piece by piece')

  const types: string[] = []
  let text = ''
  for await (const event of await client.responses.create({ model: 'gpt-test', input: 'hi', stream: true })) {
    types.push(event.type)
    if (event.type === 'response.output_text.delta') text += event.delta
  }
  t.equal(text, SAID)
  t.equal(types.at(-1), 'response.completed')

  t.match(
    (await outcomesOf(gateway, 'openai')).map(({ detail }) => detail),
    [{ tokens: { input: 7, output: 9 } }, { tokens: { input: 7, output: 9 } }],
    'and their usage is in the outcome rows',
  )
})

await t.test(
  '§7 a denied call is a PermissionDeniedError that says what to do, streaming or not',
  async (t) => {
    const { mock, files } = await mockProvider(t)
    const gateway = await testGateway(t, { files })
    const client = openaiOf(t, gateway, await gateway.enroll('nobody', []))
    for (const stream of [false, true]) {
      const error = await caught(
        client.chat.completions.create({ ...hello(), stream }),
        OpenAI.PermissionDeniedError,
      )
      t.equal(error.status, 403)
      t.equal(error.code, 'capability_missing')
      t.equal(error.type, 'permission_error')
      t.equal(
        error.message,
        '403 acme::nobody does not hold the capability llm.chat. Ask an operator to grant it.',
      )
      t.match(error.error, { details: { required_capability: 'llm.chat' } })
      t.match(error.requestID, /^req_[0-9a-f]{32}$/)
    }
    await caught(client.responses.create({ model: 'gpt-test', input: 'hi' }), OpenAI.PermissionDeniedError)
    await caught(client.embeddings.create({ model: 'gpt-test', input: 'hi' }), OpenAI.PermissionDeniedError)
    t.equal(callsOf(mock).length, 0, 'the provider heard nothing of it')
    await gateway.close()
    const asked = gateway.log.filter(
      ({ msg, path }) => msg === 'request' && /chat|responses|embed/.test(path),
    )
    t.equal(asked.length, 4, 'and none was retried')
  },
)

await t.test('§5 a client without a certificate reads why, and does not retry', async (t) => {
  const gateway = await testGateway(t)
  const error = await caught(
    openaiOf(t, gateway, null).chat.completions.create(hello()),
    OpenAI.AuthenticationError,
  )
  t.equal(error.status, 401)
  t.equal(
    error.message,
    '401 No client certificate was presented. Connect with the certificate and the key of a principal.',
  )
  t.equal(error.headers?.get('x-should-retry'), 'false')
  t.equal((await answersOf(gateway, 401)).length, 1)
})

await t.test('a base URL without /v1 is explained', async (t) => {
  const gateway = await testGateway(t)
  const client = openaiOf(t, gateway, await gateway.enroll('bot', ['llm.chat']), '')
  const calls = [
    () => client.chat.completions.create(hello()),
    () => client.responses.create({ model: 'gpt-test', input: 'hi' }),
    () => client.models.list(),
  ]
  for (const call of calls) {
    const { message } = await caught(call(), OpenAI.NotFoundError)
    t.equal(message, '404 There is nothing at this path. Append /v1 to the base URL of this client.')
  }
  const { json } = await gateway.call(null, 'POST', '/mcp', { body: {} })
  t.match(json.message, /Append \/v1/)
})

await t.test('a model that no provider serves is a NotFoundError', async (t) => {
  const { files } = await mockProvider(t)
  const gateway = await testGateway(t, { files })
  const client = openaiOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
  const error = await caught(
    client.chat.completions.create({ ...hello(), model: 'nobody-has-it' }),
    OpenAI.NotFoundError,
  )
  t.equal(error.code, 'model_unknown')
})

await t.test(
  'docs/protocol.md#llm the provider limiting its rate is a RateLimitError that says when to return',
  async (t) => {
    const { files } = await mockProvider(t)
    const gateway = await testGateway(t, { files })
    const client = openaiOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
    const error = await caught(
      client.chat.completions.create(hello('too fast'), { maxRetries: 0 }),
      OpenAI.RateLimitError,
    )
    t.equal(error.message, '429 slow down', 'in the words of the provider')
    t.match(error, { code: 'provider_rate_limited', type: 'rate_limit_error' })
    t.equal(error.headers.get('retry-after'), '7')
    t.equal(error.headers.get('x-should-retry'), null, 'a retry may help')
  },
)

await t.test("the provider's own code reaches the OpenAI SDK: a quota is no rate", async (t) => {
  const gateway = await testGateway(t)
  let asked = 0
  gateway.upstream.answer = (res) => {
    asked += 1
    const advice = { 'retry-after': '9', 'x-should-retry': 'false' }
    res.writeHead(429, { 'content-type': 'application/json', 'x-request-id': 'up_3', ...advice })
    res.end(
      '{"error":{"message":"You exceeded your quota.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}',
    )
  }
  const client = openaiOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
  const error = await caught(client.chat.completions.create(hello()), OpenAI.RateLimitError)
  t.equal(asked, 1, 'a spent quota is asked for once: the provider’s x-should-retry reaches the SDK')
  t.match(error, { code: 'insufficient_quota', type: 'insufficient_quota', param: null })
  t.equal(error.message, '429 You exceeded your quota.')
  t.match(error.error, { details: { error_code: 'provider_rate_limited', provider: 'openai' } })
  t.match(await outcomesOf(gateway, 'openai'), [
    {
      status: 'error',
      detail: {
        reason: 'provider_rate_limited',
        upstream_status: 429,
        upstream_request_id: 'up_3',
        attempts: [{ provider: 'openai', status: 429, reason: 'provider_rate_limited' }],
      },
    },
  ])
  t.notMatch(JSON.stringify([gateway.log, await gateway.rows()]), /quota/, 'its words are the caller’s alone')
})

await t.test(
  'docs/protocol.md#llm a call that is too large is answered 413, though the SDK is still sending',
  async (t) => {
    const gateway = await testGateway(t)
    const client = openaiOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
    const call = client.chat.completions.create(hello('a'.repeat(33 * 1024 * 1024)))
    t.match(await caught(call, OpenAI.APIError), { status: 413, code: 'body_too_large' })
    t.equal((await answersOf(gateway, 413)).length, 1, 'once')
  },
)

await t.test(
  'docs/protocol.md#retry-advice what no retry can cure is not retried: a provider without a key, another dialect',
  async (t) => {
    const provider = (name: string, dialect: string, key: string, model: string): string =>
      `  - {name: ${name}, dialect: ${dialect}, base_url: UPSTREAM/v1, api_key: "${key}", models: [${model}]}\n`
    const gateway = await testGateway(t, {
      files: {
        '50-llm.yaml': `plugin: llm\ntranslate: off\nproviders:\n${provider('keyless', 'openai', '', 'gpt-keyless')}${provider('unset', 'openai', `\${env:NO_SUCH_KEY:-}`, 'gpt-unset')}${provider('other', 'anthropic', 'k', 'claude-1')}${provider('refusing', 'openai', 'k', 'gpt-refusing')}`,
      },
    })
    gateway.upstream.answer = (res) => {
      res.statusCode = 401
      res.end()
    }
    const client = openaiOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
    const expected: [string, number, string][] = [
      ['gpt-keyless', 503, 'provider_not_configured'],
      ['claude-1', 400, 'dialect_translation_unavailable'],
      ['gpt-refusing', 502, 'provider_auth_failed'],
    ]
    for (const [model, status, code] of expected) {
      const error = await caught(client.chat.completions.create({ ...hello(), model }), OpenAI.APIError)
      t.match(error, { status, code })
    }
    const unset = await caught(
      client.chat.completions.create({ ...hello(), model: 'gpt-unset' }),
      OpenAI.APIError,
    )
    t.match(unset, { status: 503, code: 'provider_not_configured' })
    t.match(unset.message, 'The provider unset has no key: set NO_SUCH_KEY in the environment of the gateway')
    for (const [, status, code] of expected)
      t.equal((await answersOf(gateway, status)).length, status === 503 ? 2 : 1, code)
  },
)

await t.test('T4 a provider dying in the middle of a stream is an error, never a short answer', async (t) => {
  const { files } = await mockProvider(t)
  const gateway = await testGateway(t, { files })
  const client = openaiOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))

  const got: string[] = []
  const cutChat = async (): Promise<void> => {
    const chunks = await client.chat.completions.create({ ...hello('break off'), stream: true })
    for await (const chunk of chunks) got.push(chunk.choices[0]?.delta.content ?? '')
  }
  const error = await caught(cutChat(), OpenAI.APIError)
  t.equal(error.code, 'provider_failed')
  t.match(error.message, /broke off in the middle/)
  t.ok(got.length > 0 && got.join('') !== SAID, `what came before it was passed on: ${got.join('')}`)

  const cutResponse = async (): Promise<void> => {
    const events = await client.responses.create({ model: 'gpt-test', input: 'break off', stream: true })
    for await (const { type } of events) got.push(type)
  }
  await t.rejects(cutResponse(), 'the Responses API too')

  const cutHelper = client.chat.completions.stream(hello('break off')).finalChatCompletion()
  await t.rejects(cutHelper, 'and the SDK’s stream helper')
  const outcomes = await outcomesOf(gateway, 'openai')
  t.same(
    outcomes.map(({ status, detail }) => [status, detail.ending]),
    Array.from({ length: 3 }, () => ['truncated', 'upstream_broken']),
  )
})

await t.test(
  'T4 a provider dying in the middle of a JSON answer is an error, never a short one',
  async (t) => {
    const gateway = await testGateway(t)
    const client = openaiOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
    for (const length of [{ 'content-length': '4000' }, undefined]) {
      gateway.upstream.answer = (res) => {
        res.writeHead(200, { 'content-type': 'application/json', ...length })
        res.write('{"id": "chatcmpl-1", "choices": [', () => res.destroy())
      }
      const call = client.chat.completions.create(hello(), { maxRetries: 0 })
      await t.rejects(call, length ? 'with a length' : 'chunked')
    }
  },
)
