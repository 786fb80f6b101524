import Anthropic from '@anthropic-ai/sdk'
import { LLMock } from '@copilotkit/aimock'
import OpenAI from 'openai'
import t from 'tap'
import { llmHandler } from '../../../proxy/llm/handler.ts'
import { openUpstream } from '../../../proxy/llm/upstream/client.ts'
import { catalogueStage } from '../../support/llm/catalogue.ts'
import { anthropic, openai, options, servicesWith } from '../../support/llm/facts.ts'
import { front } from '../../support/llm/front.ts'
import { answer, chunk, chunkedHead, rawUpstream } from '../../support/llm/upstreams.ts'

/**
 * An upstream of somebody else's making, which takes these credentials and refuses a request that brings any
 * other.
 */
const KEY = 'sk-up-1'
const TEXT = 'Hello from the mock, in several chunks of text.'
const mock = new LLMock({ port: 0, auth: { apiKeys: [KEY] } })
mock.onMessage('hello', {
  content: TEXT,
  usage: { prompt_tokens: 5, completion_tokens: 9, input_tokens: 5, output_tokens: 9 },
})
mock.onMessage('limit', { error: { message: 'slow down', type: 'rate_limit_error' }, status: 429 })
const base = `${await mock.start()}/v1`
const upstream = openUpstream()
t.teardown(async () => {
  upstream.close()
  await mock.stop()
})

const providers = [openai(base, { api_key: KEY }), anthropic(base, { api_key: KEY })]
const door = await front(t, llmHandler(options(providers), servicesWith(upstream)))
const openaiClient = (url = door.url) => new OpenAI({ baseURL: `${url}/v1`, apiKey: 'unused', maxRetries: 0 })
const anthropicClient = (url = door.url) => new Anthropic({ baseURL: url, apiKey: 'unused', maxRetries: 0 })

const hello = [{ role: 'user', content: 'hello' }] as const
const CHAT = { model: 'gpt-4o', messages: [...hello] }
const MESSAGES = { model: 'claude-x', max_tokens: 99, messages: [...hello] }

await t.test(
  '§3 the openai SDK gets its answer, with the key of the provider in place of its own',
  async (t) => {
    const answer = await openaiClient().chat.completions.create(CHAT)
    t.equal(answer.choices[0]?.message.content, TEXT)
    t.match(door.sent.at(-1)?.report?.(), {
      provider: 'openai',
      detail: { tokens: { input: 5, output: 9 } },
    })
  },
)

await t.test('T3 the same request sent there directly, with the key of the caller, is refused', async (t) => {
  const direct = new OpenAI({ baseURL: base, apiKey: 'unused', maxRetries: 0 })
  await t.rejects(direct.chat.completions.create(CHAT), { message: /401/ })
})

await t.test('§3 the openai SDK streams chat and responses', async (t) => {
  let text = ''
  for await (const { choices } of await openaiClient().chat.completions.create({ ...CHAT, stream: true })) {
    text += choices[0]?.delta.content ?? ''
  }
  t.equal(text, TEXT)
  let said = ''
  const events = await openaiClient().responses.create({ model: 'gpt-4o', input: 'hello', stream: true })
  for await (const event of events) if (event.type === 'response.output_text.delta') said += event.delta
  t.equal(said, TEXT)
  t.match(door.sent.at(-1)?.report?.(), { detail: { tokens: { input: 5, output: 9 } } })
})

await t.test('§3 the openai SDK gets embeddings', async (t) => {
  const { data } = await openaiClient().embeddings.create({
    model: 'openai/text-embedding-3-small',
    input: 'hello',
  })
  t.ok((data[0]?.embedding.length ?? 0) > 0)
})

await t.test('§3 the Anthropic SDK gets its answer, whole and streamed', async (t) => {
  const { content } = await anthropicClient().messages.create(MESSAGES)
  t.match(content, [{ type: 'text', text: TEXT }])
  const stream = anthropicClient().messages.stream(MESSAGES)
  t.equal(await stream.finalText(), TEXT)
  t.match(door.sent.at(-1)?.report?.(), { provider: 'anthropic', detail: { tokens: { output: 9 } } })
})

await t.test('§3 a provider’s 429 reaches the SDK as a rate limit', async (t) => {
  const limited = openaiClient().chat.completions.create({
    ...CHAT,
    messages: [{ role: 'user', content: 'limit' }],
  })
  const error: unknown = await limited.catch((error: unknown) => error)
  t.ok(error instanceof OpenAI.RateLimitError)
  t.match(error, { code: 'provider_rate_limited' })
})

await t.test('§3 a wrong key of ours is 502 at the SDK, never a 401', async (t) => {
  const wrong = await front(
    t,
    llmHandler(options([openai(base, { api_key: 'sk-wrong' })]), servicesWith(upstream)),
  )
  const error: unknown = await openaiClient(wrong.url)
    .chat.completions.create(CHAT)
    .catch((error: unknown) => error)
  t.match(error, { status: 502, code: 'provider_auth_failed' })
})

await t.test('the SDKs send once what another attempt cannot cure, and again what it may', async (t) => {
  const page = { 'content-type': 'text/html' }
  const spent = '{"error":{"message":"x","type":"insufficient_quota","code":"insufficient_quota"}}'
  for (const [attempts, status, said] of [
    [1, 413, answer(413, '<p>too large</p>', page)],
    [1, 404, answer(404, 'not here', { 'content-type': 'text/plain' })],
    [1, 422, answer(422, '')],
    [1, 502, answer(307, '', { location: '/elsewhere' })],
    [1, 502, answer(200, '<p>welcome</p>', page)],
    [1, 502, answer(501, '{}')],
    [1, 403, answer(403, '{"error":{"message":"flagged","code":"content_policy_violation"}}')],
    [1, 502, answer(403, '<p>forbidden</p>', page)],
    [1, 429, answer(429, spent)],
    [2, 502, answer(500, '{}')],
    [2, 409, answer(409, '<p>busy</p>', page)],
    [2, 408, answer(408, '{}')],
  ] as const) {
    const { url, seen } = await rawUpstream(t, (socket) => socket.write(said))
    const handler = llmHandler(options([openai(url), anthropic(url)]), servicesWith(upstream))
    const door = await front(t, handler)
    const once = { apiKey: 'unused', maxRetries: 1 }
    const client = new OpenAI({ ...once, baseURL: `${door.url}/v1` })
    const thrown = (error: unknown) => error
    t.match(await client.chat.completions.create(CHAT).catch(thrown), { status })
    t.equal(seen.length, attempts, `OpenAI: ${said.split('\r\n', 1)[0]}`)
    const other = new Anthropic({ ...once, baseURL: door.url })
    t.match(await other.messages.create(MESSAGES).catch(thrown), { status })
    t.equal(seen.length, 2 * attempts, `Anthropic: ${said.split('\r\n', 1)[0]}`)
  }
})

await t.test(
  'F-16 a stream that breaks raises an error in the loop of each SDK, and never just ends',
  async (t) => {
    const broken = await rawUpstream(t, (socket, { head }) => {
      const event = head.includes('/messages')
        ? 'event: ping\ndata: {"type":"ping"}\n\n'
        : 'data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\n'
      socket.write(chunkedHead() + chunk(event), () => socket.resetAndDestroy())
    })
    const { url } = await front(
      t,
      llmHandler(options([openai(broken.url), anthropic(broken.url)]), servicesWith(upstream)),
    )
    const drain = async (events: AsyncIterable<unknown>): Promise<void> => {
      for await (const event of events) t.ok(event)
    }
    const interrupted = { message: /broke off|terminated|aborted/ }
    await t.rejects(
      openaiClient(url)
        .chat.completions.create({ ...CHAT, stream: true })
        .then(drain),
      interrupted,
    )
    await t.rejects(
      anthropicClient(url)
        .messages.create({ ...MESSAGES, stream: true })
        .then(drain),
      interrupted,
    )
    const responses = openaiClient(url).responses.create({ model: 'gpt-4o', input: 'hello', stream: true })
    await t.rejects(responses.then(drain), interrupted)
  },
)

await t.test('F-19 a client that leaves its loop has the upstream stopped', async (t) => {
  const endless = await rawUpstream(t, (socket) =>
    socket.write(chunkedHead() + chunk('data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\n')),
  )
  const { url } = await front(t, llmHandler(options([openai(endless.url)]), servicesWith(upstream)))
  const events = await openaiClient(url).chat.completions.create({ ...CHAT, stream: true })
  for await (const event of events) {
    t.equal(event.choices[0]?.delta.content, 'Hel')
    break
  }
  await endless.closed
  t.equal(endless.connections(), 1)
})

await t.test('§3 the list of models is read from the mock with the key', async (t) => {
  const { round, ask } = catalogueStage(t, providers)
  await round()
  t.match(await ask(), { object: 'list', data: [{ object: 'model', id: /^(gpt|claude)-/ }] })
})
