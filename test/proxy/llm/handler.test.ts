import type { Socket } from 'node:net'
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib'
import t from 'tap'
import { Refusal } from '../../../plugins/refusal.ts'
import { CallHangup } from '../../../proxy/http/open-calls.ts'
import { refusalReply } from '../../../proxy/http/refusal.ts'
import { llmHandler } from '../../../proxy/llm/handler.ts'
import { openUpstream } from '../../../proxy/llm/upstream/client.ts'
import { anthropic, facts, openai, options, receive, servicesWith } from '../../support/llm/facts.ts'
import { answer, chunk, chunkedHead, nobody, rawUpstream } from '../../support/llm/upstreams.ts'

const upstream = openUpstream()
t.teardown(() => upstream.close())

const CHAT = { model: 'gpt-4o', messages: [] }

type Request = Parameters<typeof facts>[0]
type File = Parameters<typeof options>

const handle = async (providers: File[0], request: Request = { body: CHAT }, more: File[1] = {}) =>
  llmHandler(options(providers, more), servicesWith(upstream))(await facts(request))

/** The refusal that a call ends with. */
const refusal = async (providers: File[0], request?: Request): Promise<Refusal> => {
  const error = await handle(providers, request).catch((error: unknown) => error)
  if (error instanceof Refusal) return error
  throw new Error('the call was not refused', { cause: error })
}

const ok = (socket: Socket) => socket.write(answer(200, '{"ok":true}'))
const failing =
  (status: number, body = '{}', headers = {}) =>
  (socket: Socket) =>
    socket.write(answer(status, body, headers))

await t.test(
  '§3 the body goes upstream byte for byte, unknown fields, white space, escapes, big numbers and all',
  async (t) => {
    const { url, seen } = await rawUpstream(t, ok)
    const body =
      ' {"model":"gpt\\u002d4o",  "seed":12345678901234567890,\n"x":1.0e+2,"s":"\\u00e9\\/é", "cache_control":{"a":[ ]}}\n'
    const reply = await handle([openai(url)], { body })
    t.equal((await receive(reply)).text, '{"ok":true}')
    t.equal(seen[0]?.body.toString(), body)
    t.match(seen[0]?.head, /^POST \/v1\/chat\/completions HTTP\/1\.1\r\n/)
  },
)

for (const [name, model, sent] of [
  ['prefix', 'openai/gpt-4o', 'gpt-4o'],
  ['alias', 'fast', 'gpt-"4"'],
  ['prefix and an alias', 'openai/fast', 'gpt-"4"'],
] as const) {
  await t.test(`§3 with a ${name} the model is rewritten and every other byte stays`, async (t) => {
    const { url, seen } = await rawUpstream(t, ok)
    const rest = ',"n":{"model":"openai/gpt-4o"} , "é":12345678901234567890}'
    await handle([openai(url, { aliases: { fast: 'gpt-"4"' } })], {
      body: `{"a": 1, "model" : ${JSON.stringify(model)} ${rest}`,
    })
    t.equal(seen[0]?.body.toString(), `{"a": 1, "model" : ${JSON.stringify(sent)} ${rest}`)
    t.match(seen[0]?.head, new RegExp(`\r\ncontent-length: ${seen[0]?.body.length}$`))
  })
}

for (const [path, upstreamPath, file] of [
  ['/v1/llm/chat', '/v1/chat/completions', openai],
  ['/v1/responses', '/v1/responses', openai],
  ['/v1/embeddings', '/v1/embeddings', openai],
  ['/v1/completions', '/v1/completions', openai],
  ['/v1/responses/input_tokens', '/v1/responses/input_tokens', openai],
  ['/v1/responses/compact', '/v1/responses/compact', openai],
  ['/v1/moderations', '/v1/moderations', openai],
  ['/v1/images/generations', '/v1/images/generations', openai],
  ['/v1/messages', '/v1/messages', anthropic],
  ['/v1/v1/messages', '/v1/messages', anthropic],
  ['/v1/messages/count_tokens', '/v1/messages/count_tokens', anthropic],
] as const) {
  await t.test(
    `§3 ${path} goes to ${upstreamPath} of the provider, whose base_url may end with a slash`,
    async (t) => {
      const { url, seen } = await rawUpstream(t, ok)
      await handle([file(`${url}/`, { models: ['*'] })], { path, body: CHAT })
      t.ok(seen[0]?.head.startsWith(`POST ${upstreamPath} HTTP/1.1\r\n`))
    },
  )
}

await t.test('T2, T3 the caller’s credentials stay here and the provider’s key goes', async (t) => {
  const { url, seen } = await rawUpstream(t, ok)
  const headers = {
    authorization: 'Bearer canary',
    'x-api-key': 'canary',
    dpop: 'canary',
    cookie: 'canary',
    expect: '100-continue',
    'x-admin-secret': 'canary',
    connection: 'authorization',
    'transfer-encoding': 'chunked',
  }
  await handle([openai(url)], { body: CHAT, headers })
  t.notMatch(seen[0]?.head, /canary|expect|transfer-encoding/i)
  t.match(seen[0]?.head, /\r\nauthorization: Bearer sk-up-1\r\n/)
})

await t.test(
  '§3 the answer comes back with its status, type and limits, and reports its usage',
  async (t) => {
    const body = JSON.stringify({ model: 'gpt-4o-2024', usage: { prompt_tokens: 3, completion_tokens: 4 } })
    const { url } = await rawUpstream(
      t,
      failing(200, body, { 'x-request-id': 'up_1', 'set-cookie': 'a=b', 'x-ratelimit-limit-requests': '9' }),
    )
    const reply = await handle([openai(url)])
    t.strictSame(reply.headers, {
      'content-type': 'application/json',
      'x-ratelimit-limit-requests': '9',
      'x-upstream-request-id': 'up_1',
    })
    t.equal((await receive(reply)).text, body)
    const { timing, ...report } = reply.report?.() ?? { detail: {} }
    t.ok(timing && timing.firstByteMs > 0 && timing.upstreamMs >= timing.firstByteMs, 'and its times')
    t.strictSame(report, {
      provider: 'openai',
      detail: {
        upstream_status: 200,
        upstream_request_id: 'up_1',
        attempts: [{ provider: 'openai', status: 200 }],
        tokens: { input: 3, output: 4 },
        upstream_model: 'gpt-4o-2024',
      },
    })
  },
)

await t.test('§3 streamed events come as the upstream wrote them, together what came together', async (t) => {
  const { promise: mayGoOn, resolve: goOn } = Promise.withResolvers<void>()
  const usage = 'data: {"usage":{"prompt_tokens":3,"completion_tokens":4}}\n\n'
  const { url } = await rawUpstream(t, (socket) => {
    socket.write(chunkedHead() + chunk('data: {"a"'))
    void mayGoOn.then(() => socket.write(`${chunk(':1}\n\n')}${chunk(usage)}0\r\n\r\n`))
  })
  const reply = await handle([openai(url)], { body: { ...CHAT, stream: true } })
  t.match(reply.headers, { 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' })
  const { body } = reply
  if (typeof body !== 'object' || !('source' in body)) throw new Error('not streamed')
  body.source.once('data', goOn)
  const { chunks, brokenOff } = await receive(reply)
  t.strictSame(chunks, ['data: {"a"', `:1}\n\n${usage}`])
  t.equal(brokenOff, null)
  t.match(reply.report?.(), { detail: { tokens: { input: 3, output: 4 } } })
})

for (const [path, file, event, fields] of [
  [
    '/v1/chat/completions',
    openai,
    /^data: (.*)\n\n$/,
    { error: { type: 'api_error', code: 'provider_failed', request_id: 'req_test' } },
  ],
  ['/v1/completions', openai, /^data: (.*)\n\n$/, { error: { type: 'api_error', code: 'provider_failed' } }],
  [
    '/v1/messages',
    anthropic,
    /^event: error\ndata: (.*)\n\n$/,
    { type: 'error', error: { type: 'api_error' }, request_id: 'req_test' },
  ],
  [
    '/v1/responses',
    openai,
    /^event: error\ndata: (.*)\n\n$/,
    { type: 'error', code: 'provider_failed', param: null },
  ],
] as const) {
  await t.test(`F-16 a stream of ${path} that breaks gets the error event of its API`, async (t) => {
    const { url } = await rawUpstream(t, (socket) =>
      socket.write(chunkedHead() + chunk('data: {"a":1}\n\n'), () => socket.resetAndDestroy()),
    )
    const { text, brokenOff } = await receive(
      await handle([file(url, { models: ['*'] })], { path, body: CHAT }),
    )
    t.equal(text, 'data: {"a":1}\n\n')
    const data = event.exec(brokenOff ?? '')?.[1]
    t.match(JSON.parse(data ?? 'null'), fields)
    t.notMatch(brokenOff, /DONE/)
  })
}

await t.test('F-16 an event that was cut in half is closed before the error event', async (t) => {
  const { url } = await rawUpstream(t, (socket) =>
    socket.write(chunkedHead() + chunk('data: {"a":1}\n\ndata: {"a'), () => socket.resetAndDestroy()),
  )
  t.match((await receive(await handle([openai(url)]))).brokenOff, /^\n\ndata: \{"error"/)
})

await t.test('F-15 a stream that stalls says so in its error event', async (t) => {
  const { url } = await rawUpstream(t, (socket) => socket.write(chunkedHead() + chunk('data: 1\n\n')))
  const { brokenOff } = await receive(await handle([openai(url, { idle_timeout_ms: 20 })]))
  t.match(brokenOff, /"code":"provider_timeout"/)
})

await t.test('F-16 a JSON answer that breaks gets no event: it has no place for one', async (t) => {
  const { url } = await rawUpstream(t, (socket) =>
    socket.end(answer(200, '{"a":1', { 'content-length': '99' })),
  )
  t.equal((await receive(await handle([openai(url)]))).brokenOff, '')
})

for (const [status, reason, ours] of [
  [401, 'provider_auth_failed', 502],
  [403, 'provider_auth_failed', 502],
  [429, 'provider_rate_limited', 429],
  [500, 'provider_failed', 502],
  [503, 'provider_failed', 502],
  [529, 'provider_overloaded', 529],
  [301, 'provider_failed', 502],
  [304, 'provider_failed', 502],
  [307, 'provider_failed', 502],
] as const) {
  await t.test(
    `§3 an upstream's ${status} is ${ours} ${reason}, and nothing of a body that quotes our key gets out`,
    async (t) => {
      const headers = {
        'retry-after': '7',
        'x-ratelimit-remaining-requests': '0',
        location: 'http://127.0.0.1:1/',
        'www-authenticate': 'x',
      }
      const { url, seen } = await rawUpstream(
        t,
        failing(status, status === 304 ? '' : '{"error":"canary sk-up-1"}', headers),
      )
      // Where the request or the key is at fault, nobody else is asked either.
      const mayFailOver = status === 429 || status >= 500
      const error = await refusal(
        mayFailOver ? [openai(url)] : [openai(url), openai(url, { name: 'second' })],
      )
      t.match(error, { reason, status: ours, detail: { provider: 'openai', upstream_status: status } })
      t.notMatch(
        JSON.stringify([error.message, error.detail, error.said, error.headers]),
        /canary|sk-up|location|127/,
      )
      t.equal(seen.length, 1, 'neither retried nor redirected nor sent elsewhere')
      if (mayFailOver) t.equal(error.headers['retry-after'], '7')
    },
  )
}

for (const status of [400, 404, 413, 422]) {
  await t.test(`§3 an upstream's ${status} is its own answer to the request, and is passed on`, async (t) => {
    const body = '{"error":{"message":"no such thing","type":"invalid_request_error"}}'
    const { url, seen } = await rawUpstream(
      t,
      failing(status, body, { 'set-cookie': 'a=b', 'x-request-id': 'up' }),
    )
    const reply = await handle([openai(url), openai(url, { name: 'second' })])
    t.equal(reply.status, status)
    t.equal((await receive(reply)).text, body)
    t.strictSame(reply.headers, { 'content-type': 'application/json', 'x-upstream-request-id': 'up' })
    t.match(reply.report?.(), { provider: 'openai', detail: { upstream_status: status } })
    t.equal(seen.length, 1, 'the second provider is not asked')
  })
}

await t.test('threat 13 an upstream’s 400 that quotes our key is not passed on', async (t) => {
  const { url } = await rawUpstream(t, failing(400, '{"error":"bad header Bearer sk-up-1"}'))
  t.match(await refusal([openai(url)]), { reason: 'provider_failed' })
})

await t.test(
  'threat 38 an upstream’s refusal that is longer than 1 MiB, or cut short, is told in our words',
  async (t) => {
    const refused = { reason: 'provider_refused', status: 400, final: true }
    const long = await rawUpstream(t, failing(400, `"${'x'.repeat(1024 * 1024)}"`))
    t.match(await refusal([openai(long.url)]), refused)
    const cut = await rawUpstream(t, (socket) => socket.end(answer(400, '{', { 'content-length': '9' })))
    t.match(await refusal([openai(cut.url)]), refused)
  },
)

for (const type of ['text/html', 'text/plain', 'application/jsonp', 'image/png', '']) {
  await t.test(`threat 38 an answer of the type "${type}" is no answer of a model`, async (t) => {
    for (const [status, told] of [
      [200, { reason: 'provider_failed', status: 502, final: true }],
      [404, { reason: 'provider_refused', status: 404, final: true }],
    ] as const) {
      const { url } = await rawUpstream(t, failing(status, '<p>secret</p>', { 'content-type': type }))
      const error = await refusal([openai(url)])
      t.match(error, told)
      t.notMatch(error.message, 'secret')
    }
  })
}

await t.test(
  'threat 38 what was not asked for cannot be read, and is told in our words, not passed',
  async (t) => {
    const key = 'sk-up-quoted-in-an-answer-0123456789'
    const said = JSON.stringify({ error: { message: `no such key: ${key}` }, choices: [] })
    const utf16 = Buffer.from(said, 'utf16le')
    const answers: readonly (readonly [string, Buffer, Record<string, string>])[] = [
      ['gzip', gzipSync(said), { 'content-encoding': 'gzip' }],
      ['GZIP', gzipSync(said), { 'content-encoding': 'GZIP' }],
      ['x-gzip', gzipSync(said), { 'content-encoding': 'x-gzip' }],
      ['deflate', deflateSync(said), { 'content-encoding': 'deflate' }],
      ['br', brotliCompressSync(said), { 'content-encoding': 'br' }],
      ['zstd', zstdCompressSync(said), { 'content-encoding': 'zstd' }],
      ['two, one in the other', gzipSync(brotliCompressSync(said)), { 'content-encoding': 'br, gzip' }],
      ['identity and gzip', gzipSync(said), { 'content-encoding': 'identity, gzip' }],
      ['gzip of the wrong label', gzipSync(said), { 'content-encoding': 'identity' }],
      ['gzip without a label', gzipSync(said), {}],
      ['br without a label', brotliCompressSync(said), {}],
      ['deflate without a label', deflateRawSync(said), {}],
      ['a label without gzip', Buffer.from(said), { 'content-encoding': 'gzip' }],
      ['UTF-16', utf16, { 'content-type': 'application/json; charset=utf-16le' }],
      ['UTF-16 with a mark', Buffer.concat([Buffer.from([0xff, 0xfe]), utf16]), {}],
      ['UTF-32', Buffer.from(said.replaceAll(/./gs, '$&\0\0\0')), {}],
      ['UTF-7', Buffer.from(said), { 'content-type': 'application/json; charset="UTF-7"' }],
    ]
    for (const [name, body, headers] of answers) {
      for (const status of [200, 400, 429, 500]) {
        const length = {
          'content-length': String(body.length),
          'content-type': 'application/json',
          ...headers,
        }
        const { url, seen } = await rawUpstream(t, (socket) => {
          socket.write(answer(status, '', length))
          socket.write(body)
        })
        const request = { body: CHAT, headers: { 'accept-encoding': 'gzip, br' } }
        const error = await refusal([openai(url, { api_key: key })], request)
        t.match(seen[0]?.head, /\r\naccept-encoding: identity\r\n/)
        t.match(error.message, /^The (?:answer of the )?provider /, `${name}, ${status}`)
        t.equal(error.status, status === 400 || status === 429 ? status : 502, `${name}, ${status}`)
        t.notMatch(JSON.stringify([error.said, error.detail, error.headers]), key)
      }
    }
  },
)

await t.test('threat 38 a stream that cannot be read is broken off before its first byte', async (t) => {
  const events = `data: {"choices":[]}\n\ndata: [DONE]\n\n`.repeat(20)
  for (const body of [gzipSync(events), Buffer.from(events, 'utf16le')]) {
    const { url } = await rawUpstream(t, (socket) => {
      socket.write(
        answer(200, '', { 'content-type': 'text/event-stream', 'content-length': String(body.length) }),
      )
      socket.end(body)
    })
    const { body: passed } = await handle([openai(url, { api_key: 'k'.repeat(20) })])
    if (passed === undefined || typeof passed === 'string' || Buffer.isBuffer(passed))
      throw new Error('no stream')
    const screened: (Buffer | null | undefined)[] = []
    for await (const piece of passed.source) screened.push(passed.screen?.push(piece as Buffer))
    t.same(screened[0], null)
  }
})

await t.test('threat 38 an answer that is said to be plain is passed on, in whatever spelling', async (t) => {
  for (const headers of [
    { 'content-encoding': 'identity' },
    { 'content-encoding': 'Identity' },
    { 'content-encoding': '' },
    { 'content-type': 'application/json; charset=UTF-8' },
    { 'content-type': 'application/json;charset="utf8"' },
    { 'content-type': 'application/problem+json; charset=us-ascii' },
    { 'content-type': 'application/json; charset=ISO-8859-1' },
  ]) {
    const { url } = await rawUpstream(t, failing(200, '{"ok":"é"}', headers))
    const reply = await handle([openai(url)])
    t.equal((await receive(reply)).text, '{"ok":"é"}', JSON.stringify(headers))
    t.notOk('content-encoding' in (reply.headers ?? {}), 'and it is not said again')
  }
})

await t.test(
  'H1a a header that quotes a key, short or spelled otherwise, does not pass, nor into a row',
  async (t) => {
    const key = 'sk-short-12+/='
    for (const quoted of [key, encodeURIComponent(key), Buffer.from(`Bearer ${key}`).toString('base64')]) {
      for (const status of [200, 400, 429]) {
        const names = { 'x-request-id': quoted, 'openai-version': `v ${quoted}`, 'x-acme-note': quoted }
        const body = JSON.stringify({
          model: quoted,
          service_tier: quoted,
          usage: { prompt_tokens: 1, completion_tokens: 2 },
        })
        const { url } = await rawUpstream(t, failing(status, status === 200 ? body : '{}', names))
        const file = openai(url, { api_key: key, pass_answer_headers: ['x-acme-note'] })
        const told = await handle([file]).catch((error: unknown) => error as Refusal)
        t.notMatch(
          JSON.stringify([told.headers, typeof told.report === 'function' ? told.report() : told.report]),
          quoted,
        )
      }
    }
  },
)

await t.test('F-14 nobody there is 502, silence is 504', async (t) => {
  t.match(await refusal([openai(await nobody())]), { reason: 'provider_unreachable', status: 502 })
  const { url } = await rawUpstream(t, () => {})
  t.match(await refusal([openai(url, { first_byte_timeout_ms: 20 })]), {
    reason: 'provider_timeout',
    status: 504,
    final: true,
    message: /within 0.02 s.*first_byte_timeout_ms/,
  })
  const broken = await rawUpstream(t, (socket) => socket.resetAndDestroy())
  t.match(await refusal([openai(broken.url)]), { reason: 'provider_failed', status: 502 })
})

await t.test(
  '§3 providers are tried in their order past a dead, a silent, a limiting and a failing one',
  async (t) => {
    const order: string[] = []
    const noted = (name: string, then: (socket: Socket) => unknown) => (socket: Socket) => {
      order.push(name)
      then(socket)
    }
    const silent = await rawUpstream(
      t,
      noted('silent', () => {}),
    )
    const limiting = await rawUpstream(t, noted('limiting', failing(429)))
    const down = await rawUpstream(t, noted('failing', failing(503)))
    const good = await rawUpstream(t, noted('good', ok))
    const spare = await rawUpstream(t, noted('spare', ok))
    const reply = await handle([
      openai(await nobody(), { name: 'dead' }),
      openai(silent.url, { name: 'silent', first_byte_timeout_ms: 20 }),
      openai(limiting.url, { name: 'limiting' }),
      openai(down.url, { name: 'failing' }),
      openai(good.url, { name: 'keyless', api_key: '' }),
      openai(good.url, { name: 'good' }),
      openai(spare.url, { name: 'spare' }),
    ])
    await receive(reply)
    t.strictSame(order, ['silent', 'limiting', 'failing', 'good'])
    t.match(reply.report?.(), { provider: 'good' })
    t.strictSame(
      reply.report?.().detail.attempts,
      [
        { provider: 'dead', status: null, reason: 'provider_unreachable' },
        { provider: 'silent', status: null, reason: 'provider_timeout' },
        { provider: 'limiting', status: 429, reason: 'provider_rate_limited' },
        { provider: 'failing', status: 503, reason: 'provider_failed' },
        { provider: 'good', status: 200 },
      ],
      'each that was asked, and why it was left',
    )
  },
)

await t.test('§3 when all fail, the last one that was asked is told of', async (t) => {
  const { url } = await rawUpstream(t, failing(429, '{}', { 'retry-after': '3', 'x-request-id': 'up_9' }))
  const error = await refusal([
    openai(await nobody(), { name: 'dead' }),
    openai(url),
    openai(url, { name: 'keyless', api_key: '' }),
  ])
  t.match(error, {
    reason: 'provider_rate_limited',
    detail: { provider: 'openai' },
    headers: { 'retry-after': '3' },
    message: 'The provider is rate limiting this gateway.',
  })
  t.strictSame(error.report, {
    attempts: [
      { provider: 'dead', status: null, reason: 'provider_unreachable' },
      { provider: 'openai', status: 429, reason: 'provider_rate_limited' },
    ],
    upstream_request_id: 'up_9',
  })
})

const OVERLOADED =
  '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_up"}'
const QUOTA =
  '{"error":{"message":"You exceeded your quota.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}'

for (const [status, ours, body, words] of [
  [529, 529, OVERLOADED, { message: 'Overloaded', said: { type: 'overloaded_error' } }],
  [
    429,
    429,
    QUOTA,
    {
      message: 'You exceeded your quota.',
      said: { type: 'insufficient_quota', code: 'insufficient_quota' },
    },
  ],
  [500, 502, '{"error":"model runner has crashed"}', { message: 'model runner has crashed', said: {} }],
  [
    503,
    502,
    '{"object":"error","message":"no GPU","type":"Busy","code":503,"param":"n"}',
    { message: 'no GPU', said: { type: 'Busy', code: '503', param: 'n' } },
  ],
  [503, 502, '{"detail":"starting"}', { message: 'starting', said: {} }],
] as const) {
  await t.test(`the provider's own words of a ${status} reach the caller: ${words.message}`, async (t) => {
    const { url } = await rawUpstream(t, failing(status, body, { 'retry-after': '7' }))
    const error = await refusal([openai(url)])
    t.match(error, { status: ours, message: words.message, headers: { 'retry-after': '7' } })
    t.strictSame(error.said, words.said)
    t.equal(error.final, body === QUOTA, 'a retry may help, but fills no account')
  })
}

await t.test('a failure is told in our words where the provider’s quote a secret of ours', async (t) => {
  const ours = 'The provider answered with an error.'
  for (const [body, file] of [
    ['{"error":{"message":"key sk-up-1"}}', {}],
    ['{"error":{"message":"key \\u0073k-up-1"}}', {}],
    ['{"error":{"message":"x","code":"sk-up-1"}}', {}],
    ['{"error":{"message":"x"},"headers":{"authorization":"Bearer sk-up-1"}}', {}],
    ['{"error":{"message":"of another: sk-other-2"}}', {}],
    ['{"error":{"message":"no team-secret-7"}}', { headers: { 'x-team': 'Team team-secret-7' } }],
  ] as const) {
    const { url } = await rawUpstream(t, failing(500, body))
    const other = openai(url, { name: 'other', api_key: 'sk-other-2', models: [] })
    const error = await refusal([openai(url, file), other])
    t.match(error, { reason: 'provider_failed', message: ours })
    t.strictSame(error.said, {}, body)
  }
  const { url } = await rawUpstream(t, failing(400, '{"error":{"message":"of another: sk-other-2"}}'))
  const other = openai(url, { name: 'other', api_key: 'sk-other-2', models: [] })
  t.match(await refusal([openai(url), other]), { reason: 'provider_failed', message: ours }, 'nor in a 400')
})

await t.test(
  'threat 38 words that are too long, no JSON, late or broken off are not passed on',
  async (t) => {
    const ours = 'The provider answered with an error.'
    const long = `{"error":{"message":"${'x'.repeat(16_384)}"}}`
    for (const say of [
      failing(500, long),
      failing(500, '{"error":{"message":"'),
      failing(500, '{"error":{"message":7}}'),
      failing(500, '["error"]'),
      failing(500, ''),
      failing(500, '<p>{"error":"a page"}</p>', { 'content-type': 'text/html' }),
      (socket: Socket) => socket.write(answer(500, '{"error":"late"}', { 'content-length': '99' })),
      (socket: Socket) => socket.end(answer(500, '{"error":"cut"}', { 'content-length': '99' })),
    ]) {
      const { url } = await rawUpstream(t, say)
      const error = await refusal([openai(url)])
      t.match(error, { reason: 'provider_failed', status: 502, message: ours })
      t.strictSame(error.said, {})
    }
    const { url } = await rawUpstream(
      t,
      failing(500, JSON.stringify({ error: { message: 'y'.repeat(15_000), type: 'z'.repeat(300) } })),
    )
    const error = await refusal([openai(url)])
    t.equal(error.message.length, 4_096)
    t.strictSame(error.said, {})
  },
)

await t.test('nobody waits for the words of a provider where another one answers', async (t) => {
  const mute = await rawUpstream(t, (socket) =>
    socket.write(answer(503, '{"error":"never', { 'content-length': '99' })),
  )
  const good = await rawUpstream(t, ok)
  const call = handle([openai(mute.url, { name: 'mute' }), openai(good.url, { name: 'good' })])
  // Its connection is given up when its words are.
  const first = await Promise.race([call, mute.closed])
  t.match(first?.report?.(), { provider: 'good' })
  t.equal((await receive(await call)).text, '{"ok":true}')
})

const HTML = { 'content-type': 'text/html' }
const TEXT = { 'content-type': 'text/plain; charset=utf-8' }
const ANY = { 'content-type': '' }

for (const [name, status, body, headers] of [
  ['413 as a page', 413, '<html>secret</html>', HTML],
  ['404 as text', 404, '404 page secret', TEXT],
  ['400 as text', 400, 'secret', TEXT],
  ['400 as text without a type', 400, 'secret', ANY],
  ['422 that is empty', 422, '', {}],
  ['422 that is empty, of no type', 422, '', ANY],
  ['400 of a page that says it is JSON', 400, '<p>secret', {}],
  ['400 that is packed', 400, '\u001f\u008bsecret', { 'content-encoding': 'gzip' }],
  ['400 of bytes', 400, '\u0000\u0001secret', { 'content-type': 'application/octet-stream' }],
  ['418', 418, 'secret', TEXT],
  ['431', 431, '', HTML],
  ['451', 451, '<p>secret', HTML],
  ['499', 499, '<p>secret', HTML],
] as const) {
  await t.test(`a ${name} keeps its status, in our words, and asks nobody to try again`, async (t) => {
    for (const [file, path] of [
      [openai, '/v1/chat/completions'],
      [openai, '/v1/responses'],
      [anthropic, '/v1/messages'],
    ] as const) {
      const { url, seen } = await rawUpstream(t, failing(status, body, headers))
      const both = [file(url, { models: ['*'] }), file(url, { models: ['*'], name: 'second' })]
      const error = await refusal(both, { path, body: CHAT })
      t.match(error, { reason: 'provider_refused', status, final: true, detail: { upstream_status: status } })
      t.match(error.message, String(status))
      t.notMatch(JSON.stringify([error.message, error.detail, error.said, error.headers]), 'secret')
      t.equal(seen.length, 1, 'the second provider is not asked')
    }
  })
}

await t.test('JSON under another label is passed on as JSON', async (t) => {
  const body = '{"error":{"message":"no such model","code":"model_not_found"}}'
  for (const headers of [TEXT, ANY, { 'content-type': 'application/octet-stream' }]) {
    const { url } = await rawUpstream(t, failing(404, body, headers))
    const reply = await handle([openai(url)])
    t.match(reply, { status: 404, headers: { 'content-type': 'application/json' } })
    t.equal((await receive(reply)).text, body)
  }
})

const said = (error: object) => JSON.stringify({ error })
const FLAGGED = {
  message: 'Your input was flagged',
  code: 403,
  metadata: { flagged_input: 'x', reasons: ['y'] },
}

for (const [name, body] of [
  ['flagged input', said(FLAGGED)],
  ['flagged input by its words', said({ message: 'Your input was flagged by moderation.' })],
  [
    'a content policy',
    said({ message: 'No.', type: 'invalid_request_error', code: 'content_policy_violation' }),
  ],
  ['a safety check', '{"code":"denied","error":"Content violates usage guidelines. Failed check: SAFETY_X"}'],
  [
    'no access to a model',
    said({ message: 'Project `p` does not have access to it', code: 'model_not_found' }),
  ],
  ['no access to a model by its name', said({ type: 'permission_error', message: 'No access to gpt-4o.' })],
  [
    'no access by Anthropic',
    said({ type: 'permission_error', message: 'Your account may not use this model.' }),
  ],
  [
    'a blocked model',
    said({ message: 'Blocked.', type: 'permissions_error', code: 'model_permission_blocked_org' }),
  ],
  ['a country', said({ message: 'Not supported.', code: 'unsupported_country_region_territory' })],
  ['a member of the body', said({ message: 'Not for you.', param: 'model' })],
] as const) {
  await t.test(`a 403 about ${name} reaches the caller as it is`, async (t) => {
    const { url, seen } = await rawUpstream(t, failing(403, body))
    const reply = await handle([openai(url), openai(url, { name: 'second' })])
    t.equal(reply.status, 403)
    t.equal((await receive(reply)).text, body)
    t.equal(seen.length, 1)
  })
}

for (const [name, status, body, headers = {}] of [
  ['a 403 about the key', 403, said({ type: 'permission_error', message: 'Your API key lacks secret' })],
  ['a 403 about a spent key', 403, said({ message: 'Key limit exceeded secret', code: 403 })],
  ['a 403 about scopes', 403, said({ message: 'Missing scopes: model.request secret' })],
  ['a 403 about a network', 403, said({ code: '403', message: 'Virtual Network/Firewall rules secret' })],
  ['a 403 of a project', 403, `[${said({ code: 403, status: 'PERMISSION_DENIED', message: 'secret' })}]`],
  ['a 403 that says nothing', 403, ''],
  ['a 403 as a page', 403, '<p>model secret', HTML],
  ['a 403 that is cut', 403, '{"error":', {}],
  ['a 401 about anything', 401, said({ message: 'secret', code: 'model_not_found' })],
  ['a 407', 407, 'secret', TEXT],
  [
    'a 400 about the key',
    400,
    `[${said({ code: 400, message: 'API key not valid secret', details: [{ reason: 'API_KEY_INVALID' }] })}]`,
  ],
  ['a 400 that quotes the key', 400, '{"code":"x","error":"Incorrect API key provided: sk-up-1 secret"}'],
] as const) {
  await t.test(`${name} is ours to mend: a 502 without its words, and no second try`, async (t) => {
    const { url, seen } = await rawUpstream(t, failing(status, body, headers))
    const error = await refusal([openai(url), openai(url, { name: 'second' })])
    t.match(error, { reason: 'provider_auth_failed', status: 502, final: true })
    t.notMatch(JSON.stringify([error.message, error.detail, error.said]), /secret|sk-up/)
    t.equal(seen.length, 1)
  })
}

await t.test('a model that is called like a word gets nobody the words about our key', async (t) => {
  const { url } = await rawUpstream(t, failing(403, said({ message: 'Error 403: key limit of secret' })))
  for (const model of ['e', 'of', 'limit', '403']) {
    const body = { ...CHAT, model: `openai/${model}` }
    const error = await refusal([openai(url, { models: ['*'] })], { body })
    t.match(error, { reason: 'provider_auth_failed', status: 502 }, model)
    t.notMatch(JSON.stringify([error.message, error.detail, error.said]), /secret/)
  }
})

for (const [status, body] of [
  [401, said({ message: 'Incorrect API key provided: sk-own', code: 'invalid_api_key' })],
  [403, said({ type: 'permission_error', message: 'Your API key may not do this.' })],
  [429, said({ message: 'You exceeded your quota.', code: 'insufficient_quota' })],
  [400, said({ message: 'API key not valid.' })],
] as const) {
  await t.test(`with the caller's own key a ${status} is the caller's, with its words`, async (t) => {
    const { url } = await rawUpstream(t, failing(status, body, { 'retry-after': '7' }))
    const asked = { body: CHAT, headers: { authorization: 'Bearer sk-own' } }
    const reply = await handle([openai(url, { auth: 'passthrough' })], asked)
    t.match(reply, { status, headers: { 'retry-after': '7' } })
    t.equal((await receive(reply)).text, body)
    const fixed = { auth: 'passthrough', headers: { authorization: 'Bearer of-the-operator' } }
    const ours = await handle([openai(url, fixed)], asked).catch((error: unknown) => error)
    t.match(ours, { reason: status === 429 ? 'provider_rate_limited' : 'provider_auth_failed' })
  })
}

await t.test(
  'a 401 of the caller’s own key that is a page is a 401 without a challenge of ours',
  async (t) => {
    const { url } = await rawUpstream(t, failing(401, '<p>secret', HTML))
    const asked = { body: CHAT, headers: { authorization: 'Bearer sk-own' } }
    const error = await refusal([openai(url, { auth: 'passthrough' })], asked)
    const { status, headers, body } = refusalReply(error, 'req_1')
    t.match({ status, body }, { status: 401, body: /"authentication_error"/ })
    t.equal(headers?.['www-authenticate'], undefined)
  },
)

for (const status of [408, 409]) {
  await t.test(
    `a ${status} of the first provider asks the next, and of the last is the caller’s`,
    async (t) => {
      const body = said({ message: 'busy' })
      const first = await rawUpstream(t, failing(status, body))
      const second = await rawUpstream(t, ok)
      const reply = await handle([openai(first.url), openai(second.url, { name: 'second' })])
      t.equal((await receive(reply)).text, '{"ok":true}')
      t.match(reply.report?.().detail.attempts, [
        { provider: 'openai', status, reason: 'provider_refused' },
        {},
      ])
      const keyless = openai(second.url, { name: 'keyless', api_key: '' })
      const last = await handle([openai(first.url), keyless])
      t.match(last, { status })
      t.equal((await receive(last)).text, body)
      const keyed = { body: CHAT, headers: { 'idempotency-key': 'one' } }
      const asked = await handle([openai(first.url), openai(second.url, { name: 'second' })], keyed)
      // A 409 may say that the first request of that key is still at work, and paid for.
      t.equal((await receive(asked)).text, status === 409 ? body : '{"ok":true}')
      const page = await rawUpstream(t, failing(status, '<p>', HTML))
      t.match(await refusal([openai(page.url)]), { reason: 'provider_refused', status, final: false })
    },
  )
}

await t.test('a 402 of our account asks the next, and its words reach nobody', async (t) => {
  const body = said({ message: 'Account acme has $0.12 left. secret', type: 'billing_error' })
  const spent = await rawUpstream(t, failing(402, body))
  const second = await rawUpstream(t, ok)
  const reply = await handle([openai(spent.url), openai(second.url, { name: 'second' })])
  t.equal((await receive(reply)).text, '{"ok":true}')
  t.match(reply.report?.().detail.attempts, [
    { provider: 'openai', status: 402, reason: 'provider_refused' },
    {},
  ])
  const keyless = openai(second.url, { name: 'keyless', api_key: '' })
  const page = await rawUpstream(t, failing(402, '<p>secret', HTML))
  for (const last of [[openai(spent.url)], [openai(spent.url), keyless], [openai(page.url)]]) {
    const error = await refusal(last)
    t.match(error, { reason: 'provider_refused', status: 402, final: true, message: /Tell the operator/ })
    const { body: answered } = refusalReply(error, 'req_1')
    t.match(answered, /"api_error"/, 'it is no fault of the request')
    t.notMatch(JSON.stringify([answered, error.detail, error.said]), /secret|billing|acme/)
  }
  const asked = { body: CHAT, headers: { authorization: 'Bearer sk-own' } }
  const own = await handle([openai(spent.url, { auth: 'passthrough' })], asked)
  t.equal(own.status, 402)
  t.equal((await receive(own)).text, body, 'the words about a caller’s own account are the caller’s')
})

for (const status of [300, 301, 302, 303, 304, 307, 308]) {
  await t.test(
    `a ${status} is not followed, and its cause is told: to the operator where it led`,
    async (t) => {
      const there = await rawUpstream(t, ok)
      const body = status === 304 ? '' : '{}'
      const { url } = await rawUpstream(
        t,
        failing(status, body, { location: `${there.url}/secret?key=secret` }),
      )
      const error = await refusal([openai(url), openai(there.url, { name: 'second' })])
      t.match(error, { reason: 'provider_failed', status: 502, final: true, message: /redirects.*base_url/ })
      t.notMatch(JSON.stringify([error.message, error.detail]), /secret|127/)
      t.equal(String(error.cause), `Error: redirected to ${new URL(there.url).origin}`)
      t.equal(there.connections(), 0)
    },
  )
}

for (const [name, answered, final] of [
  ['a 200 of a page', answer(200, '<p>', HTML), true],
  ['a 204 without anything', 'HTTP/1.1 204 No Content\r\n\r\n', true],
  ['a 205 without anything', 'HTTP/1.1 205 Reset Content\r\ncontent-length: 0\r\n\r\n', true],
  ['a 501', answer(501, '{}'), true],
  ['a 505', answer(505, '{}'), true],
  ['a 500', answer(500, '{}'), false],
  ['a 599', answer(599, '{}'), false],
  ['a 999', answer(999, '{}'), false],
] as const) {
  await t.test(`${name} is a 502 that says ${final ? 'not ' : ''}to try again`, async (t) => {
    const { url } = await rawUpstream(t, (socket) => socket.write(answered))
    t.match(await refusal([openai(url)]), { reason: 'provider_failed', status: 502, final })
  })
}

await t.test('§3 an answer that has begun is never tried elsewhere', async (t) => {
  const { url } = await rawUpstream(t, (socket) =>
    socket.write(chunkedHead() + chunk('data: {"a":1}\n\n'), () => socket.resetAndDestroy()),
  )
  const second = await rawUpstream(t, ok)
  const { brokenOff } = await receive(await handle([openai(url), openai(second.url, { name: 'second' })]))
  t.match(brokenOff, /provider_failed/)
  t.equal(second.seen.length, 0)
})

await t.test(
  '§3 without a key, and not passing the caller’s on, it is 503 and nobody is asked',
  async (t) => {
    const { url, connections } = await rawUpstream(t, ok)
    t.match(await refusal([openai(url, { api_key: '' })]), { reason: 'provider_not_configured', status: 503 })
    t.match(await refusal([openai(url, { auth: 'passthrough' })]), { reason: 'provider_not_configured' })
    t.equal(connections(), 0)
  },
)

await t.test('§3 auth: passthrough asks with the caller’s own vendor key', async (t) => {
  const { url, seen } = await rawUpstream(t, ok)
  const headers = { authorization: 'Bearer sk-own' }
  await handle([openai(url, { auth: 'passthrough' })], { body: CHAT, headers })
  t.match(seen[0]?.head, /\r\nauthorization: Bearer sk-own\r\n/)
  t.notMatch(seen[0]?.head, /sk-up-1/)
})

await t.test('a caller’s vendor key goes to one origin, and no failover leaves it', async (t) => {
  const asked = { body: CHAT, headers: { authorization: 'Bearer sk-own' } }
  const first = await rawUpstream(t, failing(503))
  const other = await rawUpstream(t, ok)
  const passing = { auth: 'passthrough' }
  const pairs: readonly (readonly [string, File[0][number], File[0][number]])[] = [
    ['from one that passes keys to another', passing, passing],
    ['from one that passes keys to one with ours', passing, {}],
    ['from one with our key to one that passes keys', {}, passing],
  ]
  for (const [name, from, to] of pairs) {
    const providers = [openai(first.url, from), openai(other.url, { name: 'second', ...to })]
    t.match(await refusal(providers, asked), { reason: 'provider_failed' }, name)
  }
  t.equal(other.connections(), 0)
  const third = openai(other.url, { name: 'third' })
  const skipped = await rawUpstream(t, ok)
  const passed = openai(skipped.url, { name: 'second', ...passing })
  const past = await handle([openai(first.url), passed, third], asked)
  t.equal((await receive(past)).text, '{"ok":true}', 'one that is left out hides none after it')
  t.equal(skipped.connections(), 0)
  const before = first.seen.length
  await refusal([openai(first.url, passing), openai(first.url, { name: 'second', ...passing })], asked)
  t.equal(first.seen.length, before + 2, 'of one origin the next is asked')
  const keyless = await handle([openai(first.url, passing), third])
  t.equal((await receive(keyless)).text, '{"ok":true}', 'one that nobody has a key for is not asked at all')
})

await t.test('§3 unknown models and the other dialect are refused before anybody is asked', async (t) => {
  const { url, connections } = await rawUpstream(t, ok)
  t.match(await refusal([openai(url)], { body: { model: 'mistral' } }), {
    reason: 'model_unknown',
    status: 404,
  })
  const chatAlone = openai(url, { speaks: ['chat'] })
  t.match(await refusal([chatAlone], { path: '/v1/messages/count_tokens', body: CHAT }), {
    reason: 'dialect_translation_unavailable',
    status: 400,
  })
  t.equal(connections(), 0)
})

await t.test('F-19 a caller who hangs up stops the call, and no further provider is asked', async (t) => {
  const caller = new CallHangup()
  const { url, closed } = await rawUpstream(t, () => caller.hangUp())
  const second = await rawUpstream(t, ok)
  const call = handle([openai(url), openai(second.url, { name: 'second' })], {
    body: CHAT,
    hangup: caller,
  })
  await t.rejects(call, {
    message: 'The caller disconnected before the answer.',
    report: {
      attempts: [{ provider: 'openai', status: null, reason: 'client_gone' }],
      tokens_unknown: 'no_answer',
    },
  })
  await closed
  t.equal(second.connections(), 0)
})

for (const [what, file, query, sent] of [
  ['beta of Anthropic', anthropic, 'beta=true', '?beta=true'],
  ['a version of Azure’s API', openai, 'api-version=preview', '?api-version=preview'],
  ['what the operator names', openai, 'trace=1&include[]=a&include[]=b', '?include[]=a&include[]=b'],
  ['nothing else', openai, 'beta=true&key=canary&%69nclude[]=x&Api-Version=1&=&&', ''],
  ['no query', anthropic, '', ''],
] as const) {
  await t.test(`§3 of a caller's query goes to the provider: ${what}`, async (t) => {
    const { url, seen } = await rawUpstream(t, ok)
    const path = file === anthropic ? '/v1/messages' : '/v1/chat/completions'
    await handle([file(url, { models: ['*'], pass_query: ['include[]'] })], { path, query, body: CHAT })
    const [, target] = seen[0]?.head.split(' ') ?? []
    t.equal(target, path + sent)
  })
}

await t.test(
  '§8 what the provider says of retries reaches the caller, whoever words the answer',
  async (t) => {
    const said = {
      'x-should-retry': 'false',
      'x-acme-quota': '0',
      'x-acme-token': 'canary',
      'set-cookie': 'c',
    }
    const file = { pass_answer_headers: ['x-acme-*'] }
    for (const status of [429, 500, 529]) {
      const { url } = await rawUpstream(t, failing(status, QUOTA, { ...said, 'ratelimit-reset': '9' }))
      t.strictSame((await refusal([openai(url, file)])).headers, {
        'x-should-retry': 'false',
        'x-acme-quota': '0',
        'ratelimit-reset': '9',
      })
    }
    for (const status of [200, 400]) {
      const { url } = await rawUpstream(t, failing(status, '{}', said))
      t.strictSame((await handle([openai(url, file)])).headers, {
        'content-type': 'application/json',
        'x-should-retry': 'false',
        'x-acme-quota': '0',
      })
      t.notOk((await handle([openai(url)])).headers?.['x-acme-quota'], 'unless it is named: it stays here')
    }
    const { url } = await rawUpstream(t, failing(401, '{}', said))
    t.strictSame(
      (await refusal([openai(url, file)])).headers,
      {},
      'a quarrel about our key says nothing to callers',
    )
  },
)

await t.test(
  'a server of OpenAI’s dialect that speaks Messages gets them as they came, with its own key',
  async (t) => {
    const { url, seen } = await rawUpstream(t, ok)
    const file = [openai(url, { server: 'vllm', models: ['qwen*'] })]
    const body = ' {"model":"qwen3",  "messages":[], "max_tokens":1.0}'
    await handle(file, { path: '/v1/messages', query: 'beta=true', body, headers: { 'anthropic-beta': 'b' } })
    t.equal(seen[0]?.body.toString(), body)
    t.match(seen[0]?.head, /^POST \/v1\/messages\?beta=true HTTP/)
    t.match(seen[0]?.head, /authorization: Bearer sk-up-1\r\n/)
    t.match(seen[0]?.head, /anthropic-version: 2023-06-01\r\n/)
    await handle(file, { body: { model: 'qwen3' } })
    t.notMatch(seen[1]?.head, /anthropic-version/)
    for (const [more, path] of [
      [{ server: 'gemini' }, '/v1/responses/compact'],
      [{ speaks: ['messages'] }, '/v1/responses/input_tokens'],
      [{ speaks: ['chat'] }, '/v1/messages/count_tokens'],
    ] as const) {
      const { reason } = await refusal([openai(url, { models: ['*'], ...more })], { path, body: CHAT })
      t.equal(reason, 'dialect_translation_unavailable', path)
    }
    t.equal(seen.length, 2)
  },
)

const VERTEX = '"anthropic_version":"vertex-2023-10-16",'
for (const [what, body, sent, path, headers] of [
  [
    'first',
    '{"model":"claude-x@1", "max_tokens":1.0}',
    `{${VERTEX} "max_tokens":1.0}`,
    'claude-x@1:rawPredict',
  ],
  [
    'last',
    '{"stream": true , "model" : "claude-x" }',
    `{${VERTEX}"stream": true  }`,
    'claude-x:streamRawPredict',
  ],
  ['between', ' {"a":[ ],\n"model":"claude-x","b":2}', ` {${VERTEX}"a":[ ],\n"b":2}`, 'claude-x:rawPredict'],
  ['alone', '{ "model":"claude-x" }', '{"anthropic_version":"vertex-2023-10-16"  }', 'claude-x:rawPredict'],
  ['with a path in it', '{"model":"claude-../x?","b":2}', `{${VERTEX}"b":2}`, 'claude-..%2Fx%3F:rawPredict'],
  [
    'an alias',
    '{"model":"claude-alias","b":"claude-alias"}',
    `{${VERTEX}"b":"claude-alias"}`,
    'claude-dated:rawPredict',
  ],
  [
    'with betas',
    '{"model":"claude-x","b":2}',
    `{${VERTEX}"anthropic_beta":["a-1","b-2"],"b":2}`,
    'claude-x:rawPredict',
    { 'anthropic-beta': 'a-1, b-2', 'anthropic-version': '2023-06-01' },
  ],
  [
    'with its own version and betas',
    '{"anthropic_version":"v","anthropic_beta":[],"model":"claude-x","b":2}',
    '{"anthropic_version":"v","anthropic_beta":[],"b":2}',
    'claude-x:rawPredict',
    { 'anthropic-beta': 'a-1' },
  ],
] as const) {
  await t.test(
    `Claude at Google Cloud has the model in the path, and every other byte stays: ${what}`,
    async (t) => {
      const { url, seen } = await rawUpstream(t, ok)
      const base = `${url}/publishers/anthropic/models`
      const file = anthropic(base, { api: 'vertex', aliases: { 'claude-alias': 'claude-dated' } })
      await handle([file], { path: '/v1/messages', query: 'beta=true', body, ...(headers && { headers }) })
      const [{ head, body: came } = { head: '', body: Buffer.alloc(0) }] = seen
      t.equal(came.toString(), sent)
      t.equal(head.split(' ', 2)[1], `/v1/publishers/anthropic/models/${path}`)
      t.match(head, /authorization: Bearer sk-ant-up-1\r\n/)
      t.match(head, new RegExp(`content-length: ${came.length}(?:\r\n|$)`))
      t.notMatch(head, /^anthropic-/m)
    },
  )
}

await t.test('tokens are counted at Google Cloud with the model in the body', async (t) => {
  const { url, seen } = await rawUpstream(t, ok)
  const file = anthropic(url, { api: 'vertex', aliases: { 'claude-alias': 'claude-dated' } })
  await handle([file], { path: '/v1/messages/count_tokens', body: '{"b":2,"model":"claude-alias"}' })
  t.equal(seen[0]?.body.toString(), `{${VERTEX}"b":2,"model":"claude-dated"}`)
  t.match(seen[0]?.head, /^POST \/v1\/count-tokens:rawPredict /)
})

await t.test('a refusal says that the counts are not known if the provider may have worked', async (t) => {
  const slow = { first_byte_timeout_ms: 1 }
  for (const [what, say, more, unknown] of [
    ['no answer in time', () => {}, slow, 'no_answer'],
    ['a reset', (socket: Socket) => socket.resetAndDestroy(), {}, 'no_answer'],
    [
      'a page',
      (socket: Socket) => socket.write(answer(200, '<p>', { 'content-type': 'text/html' })),
      {},
      'unreadable',
    ],
    ['its own failure', failing(500), {}, undefined],
    ['its refusal', failing(404, 'none', { 'content-type': 'text/html' }), {}, undefined],
  ] as const) {
    const { url } = await rawUpstream(t, say)
    const { report } = await refusal([openai(url, more)])
    t.equal(report.tokens_unknown, unknown, what)
  }
  const { report } = await refusal([openai(await nobody())])
  t.notOk('tokens_unknown' in report, 'no connection costs nothing')
  const { url } = await rawUpstream(t, () => {})
  const free = await refusal([anthropic(url, slow)], {
    path: '/v1/messages/count_tokens',
    body: { model: 'claude-x' },
  })
  t.notOk('tokens_unknown' in free.report, 'nor does a count')
})
