import type { Socket } from 'node:net'
import t, { type Test } from 'tap'
import { type RawUpstream, rawUpstream } from '../support/broken-upstream.ts'
import { PLUGIN_FILES, type TestGateway, testGateway } from '../support/gateway.ts'
import { begin, event } from '../support/llm/translate.ts'
import { chatBytes, rawAnswer, rawConnect, requestBytes } from '../support/raw.ts'
import { eventually, settledCalls } from '../support/settled.ts'

const EVENT = 'data: {"choices":[{"index":0,"delta":{"content":"hello"}}]}\n\n'
const chunk = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`
const EVENTS = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n'
const BEGUN = EVENTS + chunk(EVENT)
const HALF = { type: 'text_delta', text: 'half' }

interface Broken {
  readonly gateway: TestGateway
  readonly upstream: RawUpstream
}

/** A gateway whose provider is a raw one. */
async function brokenGateway(t: Test): Promise<Broken> {
  const upstream = await rawUpstream(t)
  const llm = (PLUGIN_FILES['50-llm.yaml'] ?? '')
    .replaceAll('UPSTREAM', upstream.url)
    .replaceAll(/(api_key: .*)/g, '$1\n    idle_timeout_ms: 300\n    first_byte_timeout_ms: 300')
  return { gateway: await testGateway(t, { files: { '50-llm.yaml': llm } }), upstream }
}

const reset = (socket: Socket): void => void socket.resetAndDestroy()

/** Writes, and does the rest once the bytes are out. */
const say =
  (text: string, then: (socket: Socket) => void = () => {}) =>
  (socket: Socket): void =>
    void socket.write(text, () => setImmediate(() => then(socket)))

const CUTS: readonly (readonly [string, (socket: Socket) => void, string])[] = [
  ['a reset', say(BEGUN, reset), 'provider_failed'],
  ['an early FIN', say(BEGUN, (socket) => socket.end()), 'provider_failed'],
  [
    'an early FIN within a chunk',
    say(`${BEGUN}ff\r\ndata: {"cho`, (socket) => socket.end()),
    'provider_failed',
  ],
  ['a chunk that is none', say(`${BEGUN}zz\r\nboom\r\n`), 'provider_failed'],
  ['a silence', say(BEGUN), 'provider_timeout'],
]

t.test('T4 F-15 F-16 a stream that breaks off never ends cleanly', async (t) => {
  const broken = await brokenGateway(t)
  const bot = await broken.gateway.enroll('bot', ['llm.chat'])
  for (const [index, [name, misbehave, code]] of CUTS.entries()) {
    await t.test(name, async (t) => {
      broken.upstream.onRequest = misbehave
      const received = await rawAnswer(t, broken.gateway, bot, chatBytes('gpt-test', [], { stream: true }))
      t.match(received, /^HTTP\/1\.1 200 /)
      t.match(received, 'hello', 'what came was passed on')
      t.notMatch(received, '[DONE]')
      t.notMatch(received, /\r\n0\r\n/, 'no last chunk')
      t.match(received, `"code":"${code}"`, "the dialect's error event")
      const { ended } = await settledCalls(broken.gateway)
      t.equal(ended.length, index + 1, 'exactly one outcome')
      t.match(ended.at(-1), {
        status: 'truncated',
        detail: { ending: 'upstream_broken', http_status: 200 },
      })
    })
  }
})

t.test('T4 F-16 an Anthropic stream and a JSON answer are cut as well', async (t) => {
  const broken = await brokenGateway(t)
  const bot = await broken.gateway.enroll('bot', ['llm.chat'])
  broken.upstream.onRequest = say(EVENTS + chunk('event: ping\ndata: {"type": "ping"}\n\n'), reset)
  const body = JSON.stringify({ model: 'claude-test', messages: [], max_tokens: 1, stream: true })
  const events = await rawAnswer(t, broken.gateway, bot, requestBytes('POST', '/v1/messages', [], body))
  t.match(events, /event: error\ndata: {"type":"error"/)
  t.notMatch(events, /message_stop|\r\n0\r\n/)

  const head = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n'
  broken.upstream.onRequest = say(`${head}{"choices":[`, (socket) => socket.end())
  const json = await rawAnswer(t, broken.gateway, bot, chatBytes('gpt-test'))
  t.match(json, /content-length: 100\r\n/i, 'the caller can tell')
  t.equal(json.slice(json.indexOf('\r\n\r\n') + 4), '{"choices":[')
  const { ended } = await settledCalls(broken.gateway)
  t.match(ended, [{ status: 'truncated' }, { status: 'truncated' }])
})

t.test('T4 F-16 a translated stream that is broken is cut behind its error event', async (t) => {
  const { gateway, upstream } = await brokenGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const half = begin() + event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } })
  const begun = EVENTS + chunk(half + event('content_block_delta', { index: 0, delta: HALF }))
  const created = `data: {"type":"response.created","response":{"id":"r"}}\n\n`
  const responses = EVENTS + chunk(created)
  const fault = chunk(event('error', { error: { type: 'overloaded_error', message: 'busy' } }))
  const asked = { stream: true, max_tokens: 9 }
  const chat = chatBytes('claude-test', [], asked)
  const user = { role: 'user', content: 'hi' }
  const posted = (path: string, body: object): string =>
    requestBytes('POST', path, [], JSON.stringify({ stream: true, ...body }))
  const input = posted('/v1/responses', { model: 'claude-test', input: 'hi' })
  const message = posted('/v1/messages', { ...asked, model: 'gpt-test', messages: [user] })
  const last = '0\r\n\r\n'
  const cuts: readonly (readonly [string, string, string, (socket: Socket) => void])[] = [
    ['an end in order', chat, 'data: {"error"', say(begun + last)],
    ['an end in order', input, 'event: response.failed', say(begun + last)],
    ['an end in order', message, 'event: error', say(responses + last)],
    ['a reset', chat, 'data: {"error"', say(begun, reset)],
    ['an early FIN', input, 'event: response.failed', say(begun, (socket) => socket.end())],
    ['an error, and silence', chat, 'data: {"error"', say(begun + fault)],
    ['an error, and an end in order', input, 'event: response.failed', say(begun + fault + last)],
    ['an event that is no JSON', message, 'event: error', say(responses + chunk('data: {\n\n'))],
  ]
  for (const [name, request, wanted, misbehave] of cuts) {
    upstream.onRequest = misbehave
    const received = await rawAnswer(t, gateway, bot, request)
    t.match(received, /^HTTP\/1\.1 200 /, name)
    t.equal(received.split(wanted).length, 2, `${name}: one error event`)
    t.notMatch(received, /\r\n0\r\n|\[DONE\]|message_stop|response\.completed/, `${name}: no end`)
  }
  upstream.onRequest = say(begun)
  const connection = await rawConnect(t, gateway, bot)
  connection.send(chat)
  await connection.until('half')
  await gateway.close(0)
  t.match(await connection.closed, /half.*data: \{"error".*\n\n\r\n$/s, 'nor if the gateway stops')
  const ended = (await gateway.rows()).filter(({ detail }) => detail.ending !== undefined)
  t.equal(ended.length, cuts.length + 1)
  for (const row of ended.slice(0, -1))
    t.match(row, { status: 'truncated', detail: { ending: 'upstream_broken', reason: 'provider_failed' } })
  t.match(ended.at(-1), { status: 'truncated', detail: { ending: 'drained', reason: undefined } })
})

t.test('F-17 usage that no ledger can hold still leaves exactly one outcome', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const most = Number.MAX_SAFE_INTEGER
  gateway.upstream.answer = (res) => {
    const usage = { input_tokens: most, cache_read_input_tokens: most, output_tokens: most }
    res.setHeader('content-type', 'application/json').end(JSON.stringify({ model: 'claude-test', usage }))
  }
  const body = { model: 'claude-test', messages: [], max_tokens: 1 }
  t.equal((await gateway.call(bot, 'POST', '/v1/messages', { body })).status, 200)
  const { ended } = await settledCalls(gateway)
  t.match(ended, [{ status: 'success', principal_id: bot.id }])
})

t.test(
  'F-16 a JSON answer that is longer than announced is passed on as long as it was announced',
  async (t) => {
    const broken = await brokenGateway(t)
    const head = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n'
    const bot = await broken.gateway.enroll('bot', ['llm.chat'])
    broken.upstream.onRequest = say(
      `${head}{}HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"evil":1}`,
    )
    const ask = () =>
      broken.gateway.call(bot, 'POST', '/v1/chat/completions', { body: { model: 'gpt-test', messages: [] } })
    t.match(await ask(), { status: 200, text: '{}' })
    t.match(await ask(), { status: 200, text: '{}' }, 'nothing of it is taken for the next answer')
  },
)

t.test('F-14 F-17 what is no answer becomes a 502 or 504, and the gateway goes on', async (t) => {
  const broken = await brokenGateway(t)
  const bot = await broken.gateway.enroll('bot', ['llm.chat'])
  const json = 'content-type: application/json\r\ncontent-length: 2\r\n'
  const answers: readonly (readonly [string, string, number])[] = [
    ['nothing', '', 504],
    ['no HTTP', 'hello\r\n\r\n', 502],
    ['status 000', `HTTP/1.1 000 X\r\n${json}\r\n{}`, 502],
    ['status 099', `HTTP/1.1 099 X\r\n${json}\r\n{}`, 502],
    ['status 999', `HTTP/1.1 999 X\r\n${json}\r\n{}`, 502],
    ['a redirect', `HTTP/1.1 307 X\r\nlocation: http://evil.example/\r\n${json}\r\n{}`, 502],
    ['101', `HTTP/1.1 101 X\r\nupgrade: a\r\nconnection: upgrade\r\n\r\n`, 502],
    ['a flood of 1xx', 'HTTP/1.1 102 X\r\n\r\n'.repeat(1_000), 502],
    ['204', 'HTTP/1.1 204 X\r\n\r\n', 502],
    ['HTML', 'HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\n<p/>', 502],
    ['CL and TE', `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n${json}\r\n0\r\n\r\n`, 502],
    ['two lengths', `HTTP/1.1 200 OK\r\ncontent-length: 3\r\n${json}\r\n{}`, 502],
    ['headers of 64 KB', `HTTP/1.1 200 OK\r\nx-a: ${'x'.repeat(65_536)}\r\n${json}\r\n{}`, 502],
    ['a bare CR in a header', `HTTP/1.1 200 OK\r\nretry-after: 1\rset-cookie: a=b\r\n${json}\r\n{}`, 502],
    ['a NUL in a header', `HTTP/1.1 200 OK\r\nretry-after: 1\0\r\n${json}\r\n{}`, 502],
  ]
  for (const [name, bytes, expected] of answers) {
    broken.upstream.onRequest = (socket) => {
      if (bytes !== '') socket.write(bytes)
      if (!bytes.startsWith('HTTP/1.1') && bytes !== '') socket.end()
    }
    const { status, headers } = await broken.gateway.call(bot, 'POST', '/v1/chat/completions', {
      body: { model: 'gpt-test', messages: [] },
    })
    t.equal(status, expected, name)
    t.equal(headers['set-cookie'], undefined)
  }
  const { allowed, ended } = await settledCalls(broken.gateway)
  t.equal(allowed.length, answers.length)
  t.ok(ended.length === allowed.length && ended.every(({ status }) => status === 'error'))
})

t.test('threat 12 of an answer no header passes but what is on the list', async (t) => {
  const broken = await brokenGateway(t)
  const bot = await broken.gateway.enroll('bot', ['llm.chat'])
  const evil = [
    'set-cookie: canary=1',
    'dpop-nonce: canary',
    'audit-receipt: canary',
    'x-request-id: canary id with blanks',
    'strict-transport-security: max-age=0; canary',
    'access-control-allow-origin: canary',
    'location: https://canary.example',
    'www-authenticate: canary',
    'connection: close, canary',
    'cache-control: canary',
    'content-disposition: canary',
    'clear-site-data: "canary"',
    'refresh: 0; canary',
    'trailer: canary',
    'x-should-retry: canary',
  ]
  broken.upstream.onRequest = say(
    `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n${evil.join('\r\n')}\r\n\r\n{}`,
  )
  const { status, headers } = await broken.gateway.call(bot, 'POST', '/v1/chat/completions', {
    body: { model: 'gpt-test', messages: [] },
  })
  t.equal(status, 200)
  t.notMatch(JSON.stringify(headers), /canary/)
  t.match(headers, { 'strict-transport-security': 'max-age=31536000', 'cache-control': 'no-store' })
})

t.test('F-19 a client that goes gives the provider up at once', async (t) => {
  const moments: readonly (readonly [string, (socket: Socket) => void, string])[] = [
    ['before the answer', () => {}, ''],
    ['after its head', say(EVENTS), '200 OK'],
    ['in the middle', say(BEGUN), 'hello'],
  ]
  for (const [name, answer, wanted] of moments) {
    await t.test(name, async (t) => {
      const broken = await brokenGateway(t)
      const asked = Promise.withResolvers<void>()
      broken.upstream.onRequest = (socket) => {
        asked.resolve()
        answer(socket)
      }
      const bot = await broken.gateway.enroll('bot', ['llm.chat'])
      const connection = await rawConnect(t, broken.gateway, bot)
      connection.send(chatBytes('gpt-test', [], { stream: true }))
      await asked.promise
      if (wanted !== '') await connection.until(wanted)
      connection.socket.destroy()
      await broken.upstream.hungUp
      const { ended } = await settledCalls(broken.gateway)
      t.match(ended, [{ status: 'truncated', detail: { ending: 'client_gone' } }])
      t.equal(ended.length, 1)
    })
  }
})

t.test('F-19 many clients that go at any moment leave one outcome each, and nothing open', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  let open = 0
  gateway.upstream.answer = (res) => {
    open += 1
    res.once('close', () => {
      open -= 1
    })
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(EVENT)
  }
  await Promise.all(
    Array.from({ length: 60 }, async (_, i) => {
      const connection = await rawConnect(t, gateway, bot)
      const bytes = chatBytes('gpt-test', [], { stream: true })
      // A third go within the request, a third right after it, a third once the answer has begun.
      if (i % 3 === 0) connection.send(bytes.slice(0, -(i + 1)))
      else connection.send(bytes)
      if (i % 3 === 2) await connection.until('hello')
      connection.socket.destroy()
      await connection.closed
    }),
  )
  t.equal(
    await eventually(
      () => open,
      (left) => left === 0,
    ),
    0,
  )
  const { allowed, ended } = await settledCalls(gateway)
  t.equal(ended.length, allowed.length)
  t.equal(new Set(ended.map(({ request_id: id }) => id)).size, ended.length, 'one each')
  t.equal((await gateway.call(null, 'GET', '/health')).status, 200)
})
