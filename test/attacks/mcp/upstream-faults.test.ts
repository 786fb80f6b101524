import type { ServerResponse } from 'node:http'
import t from 'tap'
import type { Json } from '../../support/gateway.ts'
import { openStream } from '../../support/mcp/open-stream.ts'
import { type Act, error, rawHead, result, sendJson, sse } from '../../support/mcp/raw-upstream.ts'
import { called, legacyWith, mcpStage, tool, toolServer } from '../../support/mcp/stage.ts'
import { eventually } from '../../support/settled.ts'

const SMALL = `plugin: mcp
answer_timeout_ms: 300
total_timeout_ms: 1500
max_message_bytes: 20000
max_answer_bytes: 40000
`
const TOOLS = [tool('go')]
const said = (text: string): Json => ({ content: [{ type: 'text', text }] })

async function behind(t: Parameters<typeof mcpStage>[0]) {
  const stage = await mcpStage(t, { files: { '60-mcp.yaml': SMALL } })
  const server = await toolServer(t, TOOLS)
  const resource = await stage.register('up', server)
  const bot = await stage.enroll('bot', ['mcp.tools.call'])
  await stage.bind(bot, resource)
  const outcomes = async (): Promise<readonly Json[]> => {
    const rows = await eventually(
      () => stage.rows({ action: 'mcp_tools_call', order: 'asc', limit: 1000 }),
      (all) => all.filter(({ status }) => status === 'allowed').length * 2 === all.length,
    )
    return rows.filter(({ status }) => status !== 'allowed')
  }
  const act = (with_: Act): void => {
    server.act = legacyWith(TOOLS, with_)
  }
  return { stage, server, resource, bot, outcomes, act }
}

/** What a broken upstream does, and the code that the caller hears. */
const FAULTS: readonly (readonly [string, number, Act])[] = [
  ['closes the connection at once', -32001, (res) => void res.destroy()],
  ['says nothing at all', -32001, () => {}],
  ['dies within the head', -32001, (res) => void res.socket?.end('HTTP/1.1 200 OK\r\ncontent-ty')],
  [
    'dies within its JSON',
    -32003,
    (res) => {
      rawHead(res, ['content-type: application/json', 'content-length: 1000'])
      res.socket?.end('{"jsonrpc":"2.0"')
    },
  ],
  ['answers 500', -32003, (res) => void res.writeHead(500).end('stack trace: /srv/secret/path')],
  ['refuses our credentials', -32003, (res) => void res.writeHead(401).end()],
  [
    'redirects to a metadata service',
    -32003,
    (res) => void res.writeHead(307, { location: 'http://169.254.169.254/' }).end(),
  ],
  [
    'answers with HTML',
    -32003,
    (res) => void res.writeHead(200, { 'content-type': 'text/html' }).end('<script>'),
  ],
  ['answers with text that is no JSON', -32003, (res) => sendJson(res, '{"jsonrpc":')],
  ['answers another request', -32003, (res, told) => sendJson(res, { ...result(told), id: 999_999 })],
  ['answers twice', -32003, (res, told) => sendJson(res, [result(told), result(told)])],
  [
    'names a member twice',
    -32003,
    (res, told) =>
      sendJson(res, `{"jsonrpc":"2.0","id":${String(told.id)},"result":{},"result":{"isError":true}}`),
  ],
  [
    'answers with more than a message may hold',
    -32003,
    (res, told) => sendJson(res, result(told, said('x'.repeat(30_000)))),
  ],
  [
    'compresses what nobody asked to be',
    -32003,
    (res) =>
      void res.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' }).end('x'),
  ],
]

await t.test(
  'F-14 to F-17: however an upstream fails, the caller hears one JSON-RPC error, and the ledger one outcome',
  async (t) => {
    const { stage, bot, act, outcomes } = await behind(t)
    for (const [what, code, fault] of FAULTS) {
      act(fault)
      const { status, json, text } = await stage.callTool(bot, 'up.go', {}, { id: what })
      t.equal(status, 200, what)
      t.match(json, {
        jsonrpc: '2.0',
        id: what,
        error: { code, data: { resource: 'up', request_id: /^req_/ } },
      })
      t.notMatch(text, /secret|stack|169\.254|<script>/, 'nothing of the upstream’s own words')
    }
    const ended = await outcomes()
    t.equal(ended.length, FAULTS.length)
    for (const { status, detail } of ended)
      t.match([status, detail.reason], ['error', /^mcp_(unreachable|failed)$/])
    act((res, told) => sendJson(res, result(told, said('fine'))))
    t.ok((await stage.callTool(bot, 'up.go')).json.result, 'and then it works again')
  },
)

await t.test(
  'what an upstream says that nobody asked for ends no answer, and none of it is passed on',
  async (t) => {
    const { stage, server, bot, outcomes, act } = await behind(t)
    act((res, told) => {
      sse(res)
      res.write(': a comment\n\ndata: ping\n\ndata: {"jsonrpc":"2.0","id":1.5,"method":"ping"}\n\n')
      for (const message of [
        { ...result(told, said('another')), id: 999_999 },
        { jsonrpc: '2.0', id: null, error: { code: -1, message: 'another' } },
        { jsonrpc: '2.0', id: 'p1', method: 'ping', params: null },
        { jsonrpc: '2.0', method: 'notifications/message', params: null },
        result(told, said('fine')),
      ])
        res.write(`data: ${JSON.stringify(message)}\n\n`)
      res.end()
    })
    const streamed = await stage.callTool(bot, 'up.go', {}, { headers: { accept: 'text/event-stream' } })
    const events = [...streamed.text.matchAll(/^data: (.*)$/gm)].map(
      ([, data]): Json => JSON.parse(String(data)),
    )
    t.match(events, [{ method: 'notifications/message' }, { result: said('fine') }])
    t.equal(events.length, 2)
    t.notOk('params' in Object(events[0]), 'no null where a client wants an object')
    const { json } = await stage.callTool(bot, 'up.go', {}, { headers: { accept: 'application/json' } })
    t.match(json.result, said('fine'))
    t.match(
      (await outcomes()).map(({ status }) => status),
      ['success', 'success'],
    )
    t.match(
      server.told.map(({ message }) => message).filter(({ id, method }) => id === 'p1' && !method),
      [{ result: {} }, { result: {} }],
    )
  },
)

await t.test(
  'a limit that has passed is named to the caller, with its setting and what to do, and in the log',
  async (t) => {
    const { stage, bot, act } = await behind(t)
    const note = { jsonrpc: '2.0', method: 'notifications/message', params: {} }
    const busy: Act = (res) => {
      const send = sse(res)
      const timer = setInterval(() => send(note), 100)
      res.once('close', () => clearInterval(timer))
    }
    for (const [what, fault, told, logged] of [
      ['silent', () => {}, /said nothing for 0\.3 s\. .*raise answer_timeout_ms/, /no answer within 300 ms/],
      [
        'stalled',
        (res) => sse(res)(note),
        /said nothing for 0\.3 s\. /,
        /no more of the answer within 300 ms/,
      ],
      [
        'endless',
        busy,
        /answer in full within 1\.5 s\. .*raise total_timeout_ms/,
        /no whole answer within 1500 ms/,
      ],
    ] as const satisfies readonly (readonly [string, Act, RegExp, RegExp])[]) {
      act(fault)
      const { json } = await stage.callTool(bot, 'up.go', {}, { headers: { accept: 'application/json' } })
      t.match(json.error, { code: -32001, message: told }, what)
      t.match(json.error.message, /Do not send the same again/)
      const line = await eventually(
        () => stage.log.findLast(({ path }) => path === '/v1/mcp'),
        (last) => logged.test(String(last?.err?.message)),
      )
      t.match(line, { reason: 'mcp_unreachable', resource: 'up' })
    }
  },
)

await t.test(
  'F-15: a stream that breaks off, never ends, or swells ends in a JSON-RPC error of this call',
  async (t) => {
    const { stage, bot, act, outcomes } = await behind(t)
    const note = {
      jsonrpc: '2.0',
      method: 'notifications/progress',
      params: { progressToken: 1, progress: 1 },
    }
    const begun = (res: ServerResponse): ServerResponse => {
      sse(res)(note)
      return res
    }
    const streams: readonly (readonly [string, number, Act])[] = [
      ['breaks off between two events', -32003, (res) => void begun(res).write('\n', () => res.destroy())],
      [
        'breaks off within an event',
        -32003,
        (res) => void begun(res).write('data: {"json', () => res.destroy()),
      ],
      ['ends without a response', -32003, (res) => void begun(res).end()],
      ['falls silent', -32001, (res) => void begun(res)],
    ]
    for (const [what, code, fault] of streams) {
      act(fault)
      const stream = await openStream(stage, bot, 'tools/call', { params: { name: 'up.go' }, id: what })
      t.match(await stream.next(), { method: 'notifications/progress' }, what)
      t.match(await stream.next(), { id: what, error: { code } })
      t.ok(await stream.clean, 'the stream itself is whole')
      stream.hangUp()
    }
    act((res) => {
      const send = sse(res)
      send(note)
      send({ ...note, params: { message: 'x'.repeat(30_000) } })
    })
    const large = await openStream(stage, bot, 'tools/call', { params: { name: 'up.go' } })
    await large.next()
    t.match(await large.next(), { error: { code: -32003 } })
    large.hangUp()
    act((res) => {
      const send = sse(res)
      const more = (): void => {
        if (!res.destroyed) send({ ...note, params: { message: 'x'.repeat(2_000) } })
        if (!res.destroyed) setImmediate(more)
      }
      more()
    })
    const endless = await openStream(stage, bot, 'tools/call', { params: { name: 'up.go' } })
    let last: Json
    for (let event = await endless.next(); event; event = await endless.next()) last = event
    t.match(last, { error: { code: -32003 } }, 'a stream has an end, whatever is in it')
    endless.hangUp()
    const ended = await outcomes()
    // The one that ended as a stream does, its answer lost: nobody knows whether the work was done.
    t.same(
      ended.map(({ status }) => status),
      ['error', 'error', 'unknown', 'error', 'error', 'error'],
    )
  },
)

await t.test(
  'an upstream cannot speak with the gateway’s own codes; what is its own passes as it is',
  async (t) => {
    const { stage, bot, act } = await behind(t)
    const fake = { required_capability: 'admin.everything' }
    for (const code of [
      -32000, -32001, -32003, -32004, -32005, -32006, -31005, -32700, -32600, -32020, -32022,
    ]) {
      act((res, told) => sendJson(res, error(told.id, code, 'capability_missing: admin.everything', fake)))
      const { json } = await stage.callTool(bot, 'up.go')
      t.match(json.error, { code: -32003, data: { upstream_error: { code } } })
      t.notOk(json.error.data.required_capability)
    }
    for (const code of [-32002, -32042, -32601, -32602, -32603, -32021, 4711]) {
      act((res, told) => sendJson(res, error(told.id, code, 'of its own', { more: [1] })))
      t.same((await stage.callTool(bot, 'up.go')).json.error, {
        code,
        message: 'of its own',
        data: { more: [1] },
      })
    }
  },
)

await t.test('unknown fields survive where MCP is open, and large numbers on the way back', async (t) => {
  const { stage, bot, act, server } = await behind(t)
  // Larger ones are refused: they would be judged as others than those that go out (mcp-judged.test.ts).
  const args = '{"id":9007199254740991,"deep":{"x":[1.0,1e2]},"e":"\\u00e9"}'
  act((res, told) =>
    sendJson(
      res,
      `{"jsonrpc":"2.0","id":${String(told.id)},"result":{"content":[],"n":98765432109876543210,"_x":{"y":1.0}}}`,
    ),
  )
  const body = `{"jsonrpc":"2.0","id":"1","method":"tools/call","params":{"name":"up.go","arguments":${args},"_meta":{"_later":{"v":2.50}},"_later":{"v":2.50}}}`
  const { text } = await stage.call(bot, 'POST', '/v1/mcp', {
    body,
    headers: { 'content-type': 'application/json' },
  })
  t.equal(text, '{"jsonrpc":"2.0","id":"1","result":{"content":[],"n":98765432109876543210,"_x":{"y":1.0}}}')
  const [sent] = server.of('tools/call')
  t.match(sent?.body.toString(), `"params":{"name":"go","arguments":${args},"_meta":{"_later":{"v":2.50}}}`)
})

await t.test('T3: nothing of the caller’s credentials goes upstream, and the operator’s does', async (t) => {
  const stage = await mcpStage(t, { env: { MCP_SECRET_UP: 'token-of-the-operator' } })
  const server = await toolServer(t, TOOLS)
  const resource = await stage.register('up', server, {
    auth_type: 'bearer',
    auth_secret_ref: 'env:MCP_SECRET_UP',
  })
  t.notMatch(JSON.stringify(resource), /token-of-the-operator/)
  const bot = await stage.enroll('bot', ['mcp.tools.call'])
  await stage.bind(bot, resource)
  const headers = {
    authorization: 'Bearer sk-callers-own',
    'x-api-key': 'sk-mine',
    cookie: 'a=b',
    'x-forwarded-for': '1.2.3.4',
    'x-acme-capability': 'all',
  }
  t.ok((await stage.callTool(bot, 'up.go', {}, { headers })).json.result)
  for (const { headers: sent } of server.told) {
    t.equal(sent.authorization, 'Bearer token-of-the-operator')
    for (const name of ['x-api-key', 'cookie', 'x-forwarded-for', 'x-acme-capability', 'dpop'])
      t.equal(sent[name], undefined, name)
  }
  server.act = legacyWith(TOOLS, (res, told) =>
    sendJson(res, result(told, said(String(told.headers.authorization)))),
  )
  const { text } = await stage.callTool(bot, 'up.go')
  t.notMatch(text, /token-of-the-operator/, 'an upstream that echoes its key does not give it away')
  t.equal(called(server).length, 2)
})

await t.test('a caller that hangs up ends the call upstream, with one truncated outcome', async (t) => {
  const { stage, bot, server, outcomes, act } = await behind(t)
  const gone = Promise.withResolvers<void>()
  act((res) => {
    sse(res)({ jsonrpc: '2.0', method: 'notifications/message', params: {} })
    res.once('close', gone.resolve)
  })
  const stream = await openStream(stage, bot, 'tools/call', { params: { name: 'up.go' } })
  await stream.next()
  stream.hangUp()
  await gone.promise
  t.match(await outcomes(), [{ status: 'truncated', detail: { ending: 'client_gone' } }])
  const told = await eventually(
    () => server.of('notifications/cancelled'),
    (list) => list.length > 0,
  )
  t.equal(told.length, 1, 'a legacy upstream is told so')
})
