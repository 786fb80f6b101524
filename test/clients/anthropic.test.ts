import Anthropic from '@anthropic-ai/sdk'
import t from 'tap'
import {
  answersOf,
  anthropicOf,
  callsOf,
  caught,
  mockProvider,
  outcomesOf,
  SAID,
} from '../support/clients/sdk.ts'
import { testGateway } from '../support/gateway.ts'

const hello = (content = 'hi') => ({
  model: 'claude-test',
  max_tokens: 64,
  messages: [{ role: 'user' as const, content }],
})

await t.test('§4 the Anthropic SDK sends messages and lists models with its base URL changed', async (t) => {
  const { mock, files } = await mockProvider(t)
  const gateway = await testGateway(t, { files })
  const client = anthropicOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))

  const message = await client.messages.create(hello())
  t.match(message.content, [{ type: 'text', text: SAID }])
  t.match(message._request_id, /^req_[0-9a-f]{32}$/, 'the SDK shows our request id')

  const models: Anthropic.ModelInfo[] = []
  for await (const model of client.models.list()) models.push(model)
  t.same(models.map(({ id }) => id).toSorted(), [
    'claude-3-5-sonnet-20241022',
    'gpt-4',
    'gpt-4o',
    'text-embedding-3-small',
  ])
  t.match(models[0], { type: 'model', display_name: String, created_at: /^\d{4}-\d\d-\d\dT[\d:]{8}Z$/ })

  const [call, ...more] = mock.getRequests().filter(({ method }) => method === 'POST')
  t.match(call, { path: '/v1/messages', response: { status: 200 } }, 'the provider got its own key')
  t.match(call?.headers, { 'anthropic-version': /^\d{4}-\d\d-\d\d$/, authorization: undefined })
  t.same(more, [])
})

await t.test('§4 the Anthropic SDK streams, and its usage is in the outcome row', async (t) => {
  const { files } = await mockProvider(t)
  const gateway = await testGateway(t, { files })
  const client = anthropicOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))

  const pieces: string[] = []
  const types: string[] = []
  for await (const event of await client.messages.create({ ...hello(), stream: true })) {
    types.push(event.type)
    if (event.type === 'content_block_delta' && event.delta.type === 'text_delta')
      pieces.push(event.delta.text)
  }
  t.equal(pieces.join(''), SAID)
  t.ok(pieces.length > 5, 'piece by piece')
  t.equal(types.at(-1), 'message_stop')
  t.equal(await client.messages.stream(hello()).finalText(), SAID, 'with its helper too')

  t.match(
    (await outcomesOf(gateway, 'anthropic')).map(({ detail }) => detail),
    [{ tokens: { input: 7, output: 9 } }, { tokens: { input: 7, output: 9 } }],
  )
})

await t.test(
  'docs/protocol.md#llm count_tokens is passed on, with what the SDK says of itself',
  async (t) => {
    const gateway = await testGateway(t)
    gateway.upstream.answer = (res) => {
      res.setHeader('content-type', 'application/json')
      res.end('{"input_tokens": 2095}')
    }
    const client = anthropicOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
    const { max_tokens: _, ...prompt } = hello()
    t.same(await client.messages.countTokens(prompt).then((count) => count.input_tokens), 2095)
    await client.beta.messages.countTokens({ ...prompt, betas: ['one-2026-01-01', 'two-2026-01-01'] })
    const [plain, beta] = gateway.upstream.seen
    t.match(plain, { method: 'POST', url: '/v1/messages/count_tokens' })
    t.equal(beta?.url, '/v1/messages/count_tokens', 'our path goes upstream, whatever the query was')
    t.match(beta?.headers['anthropic-beta'], /one-2026-01-01,two-2026-01-01/)
    for (const { headers } of gateway.upstream.seen) {
      t.equal(headers['x-api-key'], 'sk-upstream-anthropic')
      t.equal(headers.authorization, undefined, "the client's own key stays here")
    }
  },
)

await t.test(
  '§7 a denied call is a PermissionDeniedError that says what to do, streaming or not',
  async (t) => {
    const { mock, files } = await mockProvider(t)
    const gateway = await testGateway(t, { files })
    const client = anthropicOf(t, gateway, await gateway.enroll('nobody', []))
    for (const stream of [false, true]) {
      const error = await caught(
        client.messages.create({ ...hello(), stream }),
        Anthropic.PermissionDeniedError,
      )
      t.equal(error.status, 403)
      t.equal(error.type, 'permission_error')
      t.equal(
        error.message,
        '403 acme::nobody does not hold the capability llm.chat. Ask an operator to grant it.',
      )
      t.match(error.error, {
        error: { code: 'capability_missing', details: { required_capability: 'llm.chat' } },
      })
      t.match(error.requestID, /^req_[0-9a-f]{32}$/)
    }
    const { max_tokens: _, ...prompt } = hello()
    await caught(client.messages.countTokens(prompt), Anthropic.PermissionDeniedError)
    t.equal(callsOf(mock).length, 0, 'the provider heard nothing of it')
    t.equal((await answersOf(gateway, 403)).length, 3, 'and none was retried')
  },
)

await t.test('§5 a client without a certificate reads why, and does not retry', async (t) => {
  const gateway = await testGateway(t)
  const error = await caught(
    anthropicOf(t, gateway, null).messages.create(hello()),
    Anthropic.AuthenticationError,
  )
  t.equal(error.status, 401)
  t.equal(
    error.message,
    '401 No client certificate was presented. Connect with the certificate and the key of a principal.',
  )
  t.equal(error.headers.get('x-should-retry'), 'false')
  t.equal((await answersOf(gateway, 401)).length, 1)
})

await t.test(
  'docs/protocol.md#llm the provider limiting its rate is a RateLimitError that says when to return',
  async (t) => {
    const { files } = await mockProvider(t)
    const gateway = await testGateway(t, { files })
    const client = anthropicOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
    const error = await caught(
      client.messages.create(hello('too fast'), { maxRetries: 0 }),
      Anthropic.RateLimitError,
    )
    t.equal(error.type, 'rate_limit_error')
    t.match(error.message, /slow down/)
    t.equal(error.headers.get('retry-after'), '7')
  },
)

for (const stream of [false, true]) {
  await t.test(
    `a 529 stays one, streaming or not (${stream}): clients then choose another model`,
    async (t) => {
      const gateway = await testGateway(t)
      gateway.upstream.answer = (res) => {
        res.writeHead(529, { 'content-type': 'application/json', 'retry-after': '5' })
        res.end(
          '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"up"}',
        )
      }
      const client = anthropicOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
      const call = client.messages.create({ ...hello(), stream }, { maxRetries: 0 })
      const error = await caught(call, Anthropic.APIError)
      t.match(error, { status: 529, type: 'overloaded_error' })
      t.match(error.error, { error: { message: 'Overloaded' }, reason: 'provider_overloaded' })
      t.equal(error.headers?.get('retry-after'), '5')
      t.equal(error.headers?.get('x-should-retry'), null)
    },
  )
}

await t.test(
  "docs/protocol.md#llm the provider's own refusal of a request reaches the SDK as it is",
  async (t) => {
    const gateway = await testGateway(t)
    gateway.upstream.answer = (res) => {
      res.writeHead(400, { 'content-type': 'application/json' })
      res.end('{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: too many"}}')
    }
    const client = anthropicOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
    const error = await caught(client.messages.create(hello()), Anthropic.BadRequestError)
    t.equal(error.type, 'invalid_request_error')
    t.match(error.message, /max_tokens: too many/)
  },
)

await t.test('T4 a provider dying in the middle of a stream is an error, never a short answer', async (t) => {
  const { files } = await mockProvider(t)
  const gateway = await testGateway(t, { files })
  const client = anthropicOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
  const types: string[] = []
  const cut = async (): Promise<void> => {
    for await (const { type } of await client.messages.create({ ...hello('break off'), stream: true })) {
      types.push(type)
    }
  }
  const error = await caught(cut(), Anthropic.APIError)
  t.match(error.message, /broke off in the middle/)
  t.ok(types.includes('content_block_delta'), 'what came before it was passed on')
  t.notOk(types.includes('message_stop'))
  await t.rejects(client.messages.stream(hello('break off')).finalText(), 'with its helper too')
})

await t.test(
  'docs/protocol.md#llm a base URL that ends with /v1 works for messages, and is explained elsewhere',
  async (t) => {
    const { mock, files } = await mockProvider(t)
    const gateway = await testGateway(t, { files })
    const client = anthropicOf(t, gateway, await gateway.enroll('bot', ['llm.chat']), '/v1')
    const { content } = await client.messages.create(hello())
    t.match(content, [{ type: 'text', text: SAID }])
    t.equal(callsOf(mock).at(-1)?.path, '/v1/messages', 'what goes upstream is the right path')

    const { max_tokens: _, ...prompt } = hello()
    for (const call of [() => client.messages.countTokens(prompt), () => client.models.list()]) {
      const error = await caught(call(), Anthropic.BadRequestError)
      t.equal(
        error.message,
        '400 The path starts with /v1 twice. Remove /v1 from the base URL of this client.',
      )
    }
  },
)
