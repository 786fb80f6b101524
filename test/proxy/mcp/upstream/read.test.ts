import t from 'tap'
import { CallHangup } from '../../../../proxy/http/open-calls.ts'
import {
  type Act,
  error,
  legacy,
  rawMcp,
  resourceAt,
  result,
  sendJson,
  sse,
  upstreamFor,
} from '../../../support/mcp/raw-upstream.ts'
import { all, failure } from '../../../support/mcp/upstream-calls.ts'
import { DISCOVERED, modern, named, read } from '../../../support/mcp/upstream-servers.ts'
import { READING, TOOL_CALL } from '../../../support/permit.ts'

await t.test('2026-07-28 a server of the modern era is known by its answer to server/discover', async (t) => {
  const raw = await rawMcp(
    t,
    modern(() => ({ tools: named(2) })),
  )
  const reading = await read(t, raw)
  t.match(reading, {
    era: 'modern',
    protocolVersion: '2026-07-28',
    facts: {
      capabilities: { tools: { listChanged: true } },
      serverInfo: { name: 'raw', version: '1' },
      instructions: 'Be kind.',
      legacy: false,
    },
  })
  t.same(Object.keys(reading.facts).length, 4)
  t.same(
    reading.tools.map(({ name }) => name),
    named(2).map(({ name }) => name),
  )
  t.same(
    reading.tools.map(({ text }) => text),
    named(2).map((value) => JSON.stringify(value)),
  )
  t.same(
    raw.told.map(({ rpc }) => rpc),
    ['server/discover', 'tools/list', 'initialize'],
  )
  for (const { headers, message, rpc } of raw.told.slice(0, 2)) {
    t.match(headers, { 'mcp-protocol-version': '2026-07-28', 'mcp-method': rpc })
    t.match(message, {
      params: {
        _meta: {
          'io.modelcontextprotocol/protocolVersion': '2026-07-28',
          'io.modelcontextprotocol/clientInfo': { name: 'sallyport' },
          'io.modelcontextprotocol/clientCapabilities': { sampling: {}, elicitation: {}, roots: {} },
        },
      },
    })
  }
})

await t.test('2026-07-28 an error that only the modern era has makes a server modern', async (t) => {
  for (const [code, data] of [
    [-32020, undefined],
    [-32021, { requiredCapabilities: {} }],
    [-32022, { supported: ['2026-07-28'], requested: '2026-07-28' }],
  ] as const) {
    const list = modern(() => ({ tools: named(1) }))
    const raw = await rawMcp(t, (res, told) =>
      told.rpc === 'server/discover' ? sendJson(res, error(told.id, code, 'no', data), 400) : list(res, told),
    )
    t.match(await read(t, raw), { era: 'modern', facts: {}, tools: [{ name: 't0' }] }, `${code}`)
    t.match((await read(t, raw)).facts, { legacy: false }, 'it answered initialize with no handshake')
  }
})

await t.test(
  '2025-11-25 any other server is of the legacy era, and its session is ended after reading',
  async (t) => {
    const answers: [number, (id: unknown) => unknown][] = [
      [400, () => error(null, -32000, 'Bad Request: Server not initialized')],
      [400, (id) => error(id, -32000, 'Bad Request: No valid session ID provided')],
      [200, (id) => error(id, -32601, 'Method not found')],
      [404, (id) => error(id, -32601, 'Method not found')],
      [404, () => '<html>'],
      [405, () => ''],
      [406, () => ''],
      [500, () => 'oops'],
      [200, (id) => ({ jsonrpc: '2.0', id, result: {} })],
      [200, (id) => ({ jsonrpc: '2.0', id, result: { ...DISCOVERED, supportedVersions: ['2025-06-18'] } })],
      [400, (id) => error(id, -32022, 'no', { supported: ['2025-11-25'] })],
    ]
    for (const [status, body] of answers) {
      const serve = legacy({ tools: named(2) })
      const raw = await rawMcp(t, (res, told) =>
        told.rpc === 'server/discover' ? sendJson(res, body(told.id), status) : serve(res, told),
      )
      const reading = await read(t, raw)
      t.match(reading, {
        era: 'legacy',
        protocolVersion: '2025-11-25',
        facts: { capabilities: { tools: {} }, serverInfo: { name: 'raw' } },
        tools: [{ name: 't0' }, { name: 't1' }],
      })
      t.same(
        raw.told.map(({ rpc, session }) => `${rpc} ${session}`),
        [
          'server/discover undefined',
          'initialize undefined',
          'notifications/initialized s1',
          'tools/list s1',
          'DELETE s1',
        ],
      )
    }
  },
)

await t.test('a server is read as by a client that can answer whatever a caller can be asked', async (t) => {
  const raw = await rawMcp(t, legacy())
  await read(t, raw)
  const { params } = raw.of('initialize')[0]?.message ?? {}
  t.match(params, { clientInfo: { name: 'sallyport' } })
  t.same((params as { readonly capabilities: object }).capabilities, {
    sampling: {},
    elicitation: { form: {}, url: {} },
  })
})

await t.test('a server with which we have no revision in common cannot be read', async (t) => {
  const versions = [['2027-01-01'], []]
  for (const supportedVersions of versions) {
    const raw = await rawMcp(
      t,
      modern(() => ({}), { ...DISCOVERED, supportedVersions }),
    )
    await t.rejects(read(t, raw), failure('failed'))
    t.equal(raw.told.length, 1)
  }
})

await t.test('a server that is down, silent, or refuses us is asked no second question', async (t) => {
  for (const status of [401, 403]) {
    const raw = await rawMcp(t, (res) => sendJson(res, '', status))
    await t.rejects(read(t, raw), failure('failed', { status }))
    t.equal(raw.told.length, 1)
  }
  const silent = await rawMcp(t)
  await t.rejects(read(t, silent, { answerMs: 50 }), failure('timeout'))
  t.equal(silent.told.length, 1)
  const dead = await rawMcp(t, (res) => void res.socket?.destroy())
  await t.rejects(read(t, dead), failure('unreachable'))
  t.equal(dead.told.length, 1)
})

await t.test('a server without tools is not asked for any', async (t) => {
  const without = { ...DISCOVERED, capabilities: { prompts: {} } }
  const first = await rawMcp(
    t,
    modern(() => ({}), without),
  )
  t.same((await read(t, first)).tools, [])
  t.equal(first.of('tools/list').length, 0)
  const second = await rawMcp(t, legacy({ capabilities: {} }))
  t.same((await read(t, second)).tools, [])
  t.equal(second.of('tools/list').length, 0)
})

await t.test('a failing tools/list fails the read, and the session is ended all the same', async (t) => {
  const serve = legacy()
  for (const act of [
    (res, { id }) => sendJson(res, error(id, -32603, 'no')),
    (res) => sendJson(res, '', 500),
    (res) => void res.socket?.destroy(),
  ] satisfies Act[]) {
    const raw = await rawMcp(t, (res, told) =>
      told.rpc === 'tools/list' ? act(res, told) : serve(res, told),
    )
    await t.rejects(read(t, raw), { name: 'Error' })
    t.equal(raw.of('DELETE').length, 1)
  }
})

await t.test('a server that knows no tools/list has no tools', async (t) => {
  const raw = await rawMcp(t, legacy({ act: (res, { id }) => sendJson(res, error(id, -32601, 'no')) }))
  t.same((await read(t, raw)).tools, [])
})

await t.test('what a server says of itself is kept as far as it is of a sane size', async (t) => {
  const long = '\u{1F600}'.repeat(10_000)
  const discovered = {
    ...DISCOVERED,
    capabilities: { tools: {}, experimental: { long } },
    instructions: `x${long}`,
    _meta: { 'io.modelcontextprotocol/serverInfo': 'raw' },
    serverInfo: { name: 'old style' },
  }
  const raw = await rawMcp(
    t,
    modern(() => ({ tools: named(1) }), discovered),
  )
  const { facts, tools } = await read(t, raw)
  t.same(Object.keys(facts), ['instructions', 'legacy'])
  const { instructions } = facts
  if (typeof instructions !== 'string') return t.fail('there are none')
  t.ok(instructions.isWellFormed())
  t.equal(instructions.length, 16_383)
  t.equal(tools.length, 1, 'and it has the tools that it says it has')
})

await t.test('a read of its own session leaves those of callers alone', async (t) => {
  const raw = await rawMcp(t, legacy())
  const upstream = upstreamFor(t)
  const resource = resourceAt(raw.url, { era: 'legacy' })
  const call = {
    permit: TOOL_CALL,
    resource,
    owner: { principalId: 'acme::alice', sessionId: null },
    method: 'ping',
    params: null,
    headers: {},
    client: { capabilities: {}, clientInfo: null },
    era: resource.era,
    hangup: new CallHangup(),
    held: null,
  }
  const ping = async () => {
    await all(await upstream.call(call))
  }
  await ping()
  await upstream.read(READING, resource, call.hangup.signal)
  await ping()
  t.match(raw.of('DELETE'), [{ session: 's2' }])
  t.same(
    raw.of('ping').map(({ session, message }) => [session, message.params]),
    [
      ['s1', undefined],
      ['s1', undefined],
    ],
  )
})

await t.test('the permit to read one server reads no other', async (t) => {
  const raw = await rawMcp(t, legacy())
  const { signal } = new AbortController()
  const other = resourceAt(raw.url, { resource_id: 'mcpr_2' })
  await t.rejects(upstreamFor(t).read(READING, other, signal), { message: /the reading of mcpr_1/ })
  t.equal(raw.told.length, 0)
})

await t.test(
  'what a server asks while it is read is answered at once, as by the client that it was told of',
  async (t) => {
    const asked = ['ping', 'roots/list', 'elicitation/create', 'sampling/createMessage', 'tasks/list', 'x/y']
    const right = [
      { result: {} },
      { result: { roots: [] } },
      { result: { action: 'decline' } },
      { error: { code: -1 } },
      { error: { code: -32601 } },
      { error: { code: -32601 } },
    ]
    for (const at of ['initialize', 'tools/list']) {
      const answers: unknown[] = []
      const serve = legacy({ tools: named(2) })
      // Answers only once all of its questions are answered.
      let whole = (): void => {}
      const raw = await rawMcp(t, (res, told) => {
        if (told.rpc === at) {
          res.setHeader('mcp-session-id', 's1')
          const send = sse(res)
          send({ jsonrpc: '2.0', method: 'notifications/message', params: { level: 'info', data: 'x' } })
          for (const [index, method] of asked.entries()) send({ jsonrpc: '2.0', id: `q${index}`, method })
          const opened = {
            protocolVersion: '2025-11-25',
            capabilities: { tools: {} },
            serverInfo: { name: 'raw', version: '1' },
          }
          whole = () => {
            send(result(told, at === 'initialize' ? opened : { tools: named(2) }))
            res.end()
          }
          return
        }
        if (told.message.method !== undefined || told.id === null) return serve(res, told)
        answers.push(told.message)
        t.equal(told.session, 's1')
        res.writeHead(202).end()
        if (answers.length === asked.length) whole()
      })
      t.match(await read(t, raw), { era: 'legacy', tools: [{ name: 't0' }, { name: 't1' }] }, at)
      t.match(
        answers,
        right.map((answer, index) => ({ id: `q${index}`, ...answer })),
        at,
      )
    }
  },
)

await t.test('a server that asks, and takes no answer, is read all the same', async (t) => {
  const serve = legacy()
  const raw = await rawMcp(t, (res, told) => {
    if (told.message.method === undefined && told.id === 'q') return void res.writeHead(405).end()
    if (told.rpc !== 'tools/list') return serve(res, told)
    const send = sse(res)
    send({ jsonrpc: '2.0', id: 'q', method: 'ping' })
    send(result(told, { tools: named(1) }))
    res.end()
  })
  t.match(await read(t, raw), { tools: [{ name: 't0' }] })
})

await t.test('a server that asks without end while it is read cannot be read', async (t) => {
  const serve = legacy()
  let count = 0
  const raw = await rawMcp(t, (res, told) => {
    if (told.rpc !== 'tools/list') {
      if (told.message.method === undefined && told.id !== null) return void res.writeHead(202).end()
      return serve(res, told)
    }
    const send = sse(res)
    for (; count < 1_100; count += 1) send({ jsonrpc: '2.0', id: count, method: 'ping' })
  })
  await t.rejects(read(t, raw), failure('failed', { message: /asks without end/ }))
})

const HTML = { 'content-type': 'text/html' }
/** The answers of servers that are none, or not quite; the sentence for each, and the credentials. */
const MISTAKES: readonly (readonly [number, Record<string, string>, RegExp, string?])[] = [
  [307, { location: '/mcp/' }, /redirects \(HTTP status 307\) to \/mcp\/, .* register that URL$/],
  [308, { location: '?x=secret-of-it' }, /redirects \(HTTP status 308\) to \/mcp, which/],
  [301, { location: 'https://127.0.0.1/mcp' }, /to https:\/\/127\.0\.0\.1\/mcp, which is not followed/],
  [302, { location: 'https://login.example/x' }, /to another host, which is not followed: register the URL/],
  [302, { location: '/secret-of-env:MCP_SECRET_X/' }, /to another path, /, 'bearer'],
  [303, {}, /register the URL that it leads to$/],
  [
    401,
    {},
    /demands credentials \(HTTP status 401\): set auth_type and auth_secret_ref, or auth_type oauth$/,
  ],
  [401, { 'www-authenticate': 'Bearer resource_metadata="https://x/"' }, /demands an OAuth token \(HTTP/],
  [403, {}, /refused this gateway's credentials \(HTTP status 403\): renew its secret$/, 'bearer'],
  [404, HTML, /HTTP status 404: there is no MCP endpoint at this path: .* HTTP\+SSE transport/],
  [
    405,
    { allow: 'GET' },
    /HTTP status 405: .* HTTP\+SSE transport \(2024-11-05\) .* Streamable HTTP endpoint$/,
  ],
  [202, {}, /HTTP status 202: .* HTTP\+SSE transport/],
  [406, {}, /HTTP status 406: it does not answer with JSON or an event stream/],
  [415, {}, /HTTP status 415: it does not take JSON/],
  [421, {}, /HTTP status 421: it does not serve this host name/],
  [502, HTML, /HTTP status 502: a proxy before it does not reach it$/],
  [200, HTML, /neither JSON nor an event stream but a page: correct the path of endpoint_url$/],
]

await t.test('a server that is none, or not quite, is told by cause and cure', async (t) => {
  for (const [status, headers, message, auth] of MISTAKES) {
    const raw = await rawMcp(t, (res) => void res.writeHead(status, headers).end('<p>'))
    const own = auth ? ({ auth_type: 'bearer', auth_secret_ref: 'env:MCP_SECRET_X' } as const) : {}
    const resource = resourceAt(raw.url, { era: null, ...own })
    const reading = upstreamFor(t).read(READING, resource, new AbortController().signal)
    await t.rejects(reading, { message }, `${status} ${JSON.stringify(headers)}`)
    t.ok(raw.told.length <= 2, 'and is not followed')
  }
})

await t.test('a connection that cannot be made is told by cause and cure', async (t) => {
  const raw = await rawMcp(t)
  const at = (url: string, options: Parameters<typeof upstreamFor>[1] = {}) =>
    upstreamFor(t, options).read(READING, resourceAt(url, { era: null }), new AbortController().signal)
  const refusing = async (): Promise<never> => {
    throw Object.assign(new Error('no such host'), { code: 'ENOTFOUND' })
  }
  await t.rejects(at(raw.url.replace(/:\d+/, ':9')), {
    message: /nothing listens at its host and port: .*ECONNREF/,
  })
  await t.rejects(at('http://mcp.example/', { resolve: refusing }), { message: /host name has no address: / })
  await t.rejects(at(raw.url.replace('http:', 'https:')), {
    message: /does not speak TLS there: write http:\/\//,
  })
  await t.rejects(at(raw.url, { allowPrivate: false }), {
    message: /address is refused \(loopback\): MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS=true allows it$/,
  })
  await t.rejects(at('http://169.254.169.254/'), { message: /address is refused \(metadata\)$/ })
})
