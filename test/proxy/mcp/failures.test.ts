import t from 'tap'
import { agentOf, type Json } from '../../support/gateway.ts'
import { openStream } from '../../support/mcp/open-stream.ts'
import { type Act, error, result, sendJson, sse } from '../../support/mcp/raw-upstream.ts'
import { legacyWith, mcpStage, request, type Stage, tool, toolServer } from '../../support/mcp/stage.ts'
import { rawConnect, requestBytes } from '../../support/raw.ts'
import { eventually } from '../../support/settled.ts'

const TOOLS = [tool('go')]
const NOTE = { jsonrpc: '2.0', method: 'notifications/message', params: {} }

async function behind(t: Parameters<typeof mcpStage>[0]) {
  const stage = await mcpStage(t)
  const server = await toolServer(t, TOOLS)
  const resource = await stage.register('up', server)
  const bot = await stage.enroll('bot', ['mcp.tools.call', 'http.get'])
  await stage.bind(bot, resource)
  const act = (with_: Act): void => {
    server.act = legacyWith(TOOLS, with_)
  }
  return { stage, server, resource, bot, act }
}

/** The lines of MCP calls, once there are so many: they follow their answers. */
const linesOf = ({ log }: Stage, count: number): Promise<readonly Json[]> =>
  eventually(
    () => log.filter(({ path }) => path === '/v1/mcp'),
    (lines) => lines.length >= count,
  )

const metric = async ({ admin }: Stage, line: string): Promise<boolean> =>
  (await admin('GET', '/metrics')).text.split('\n').includes(line)

await t.test(
  'a failed MCP call is told in the log by reason, tool, resource and cause, whenever it failed',
  async (t) => {
    const { stage, bot, act } = await behind(t)
    act((res) => void res.writeHead(500).end('stack trace'))
    const { text } = await stage.callTool(bot, 'up.go')
    t.notMatch(text, /upstream failed|HTTP status/, 'the cause is not for the caller')

    act((res) => {
      sse(res)(NOTE)
      res.write('\n', () => res.destroy())
    })
    const stream = await openStream(stage, bot, 'tools/call', { params: { name: 'up.go' } })
    await stream.next()
    const last = await stream.next()
    t.match(last, { error: { code: -32003 } })
    t.notMatch(JSON.stringify(last), /upstream failed|cut short/)
    t.ok(await stream.clean)
    stream.hangUp()

    act((res, told) => sendJson(res, result(told, { content: [] })))
    await stage.callTool(bot, 'up.go')

    const [before, within, fine] = await linesOf(stage, 3)
    const line = { level: 50, reason: 'mcp_failed', tool: 'up.go', resource: 'up' }
    t.match(before, { ...line, err: { message: /500/ } })
    t.match(within, { ...line, status: 200, ending: 'complete', err: { message: /cut short/ } })
    t.match(fine, { level: 30, tool: 'up.go', resource: 'up' })
    t.notOk('reason' in fine || 'err' in fine)
  },
)

await t.test(
  'what an upstream told before it failed reaches the caller, also where it came in one piece',
  async (t) => {
    const { stage, bot, act } = await behind(t)
    act((res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      res.end(`data: ${JSON.stringify(NOTE)}\n\ndata: ${JSON.stringify(NOTE)}\n\ndata: {"jsonrpc"\n\n`)
    })
    const stream = await openStream(stage, bot, 'tools/call', { params: { name: 'up.go' } })
    t.same([await stream.next(), await stream.next()], [NOTE, NOTE])
    t.match(await stream.next(), { error: { code: -32003 } })
    t.ok(await stream.clean)
    stream.hangUp()
  },
)

await t.test('a call that failed after it was allowed has its resource in the outcome row', async (t) => {
  const { stage, bot, act } = await behind(t)
  const gone = Promise.withResolvers<void>()
  act((res) => void res.destroy())
  await stage.callTool(bot, 'up.go')
  act((res) => {
    sse(res)(NOTE)
    res.write('\n', () => res.destroy())
  })
  await stage.callTool(bot, 'up.go')
  // Says nothing, so that the caller leaves before there is any answer.
  const asked = Promise.withResolvers<void>()
  act((res) => {
    res.once('close', gone.resolve)
    asked.resolve()
  })
  const agent = agentOf(stage.ca, bot)
  const sent = request('tools/call', { params: { name: 'up.go' } })
  const leaving = stage.call(bot, 'POST', '/v1/mcp', { ...sent, agent })
  await asked.promise
  agent.destroy()
  await t.rejects(leaving)
  await gone.promise
  const rows = await eventually(
    () => stage.rows({ action: 'mcp_tools_call', order: 'asc', limit: 100 }),
    (all) => all.length === 6,
  )
  const ended = rows.filter(({ status }) => status !== 'allowed')
  t.match(ended, [
    { status: 'error', provider: 'up', detail: { reason: 'mcp_unreachable' } },
    { status: 'error', provider: 'up', detail: { reason: 'mcp_failed' } },
    { status: 'truncated', provider: 'up', detail: { reason: 'client_gone' } },
  ])
})

await t.test(
  'docs/protocol.md#metrics MCP calls are counted by resource and by how they ended',
  async (t) => {
    const { stage, bot, act } = await behind(t)
    await stage.callTool(bot, 'up.go')
    await stage.callTool(bot, 'up.go')
    act((res) => void res.destroy())
    await stage.callTool(bot, 'up.go')
    act((res, told) => sendJson(res, result(told, { content: [], isError: true })))
    await stage.callTool(bot, 'up.go')
    await stage.callTool(bot, 'http.get', { url: 'http://127.0.0.1/' })
    act((res) => {
      sse(res)(NOTE)
    })
    const stream = await openStream(stage, bot, 'tools/call', { params: { name: 'up.go' } })
    await stream.next()
    stream.hangUp()
    await linesOf(stage, 6)
    // Refused at the door: these reached nobody.
    await stage.grant(bot, [])
    await stage.callTool(bot, 'up.go')
    await stage.callTool(bot, 'up.other')
    await linesOf(stage, 8)
    const { text } = await stage.admin('GET', '/metrics')
    t.same(
      text
        .split('\n')
        .filter((line) => line.startsWith('sallyport_mcp_calls_total'))
        .toSorted(),
      [
        'sallyport_mcp_calls_total{resource="http.get",result="error"} 1',
        'sallyport_mcp_calls_total{resource="up",result="error"} 2',
        'sallyport_mcp_calls_total{resource="up",result="success"} 2',
        'sallyport_mcp_calls_total{resource="up",result="truncated"} 1',
      ],
    )
  },
)

await t.test(
  'docs/protocol.md#metrics what an operator has to look at is counted at each scrape',
  async (t) => {
    const { stage, server, resource } = await behind(t)
    t.ok(await metric(stage, 'sallyport_mcp_tools_quarantined 0'))
    t.ok(await metric(stage, 'sallyport_mcp_resources_unreadable 0'))
    server.act = legacyWith([tool('go', { description: 'Other.' }), tool('fresh')])
    await stage.refresh(resource)
    t.ok(await metric(stage, 'sallyport_mcp_tools_quarantined 2'))
    server.act = (res) => void res.destroy()
    await stage.refresh(resource)
    t.ok(await metric(stage, 'sallyport_mcp_resources_unreadable 1'))
    await stage.admin('PATCH', `/v1/admin/mcp-resources/${resource.resource_id}`, { enabled: false })
    t.ok(await metric(stage, 'sallyport_mcp_resources_unreadable 0'), 'one that is switched off is not read')
  },
)

const WORDS = { error: { message: 'Slow down: 40 a minute.', code: 'quota', type: 'rate_limit' } }

/** An HTTP answer of a server that is no result, and what the caller and the row have of it. */
const HTTP_ERRORS: readonly (readonly [what: string, act: Act, error: Json, row: Json, headers: Json])[] = [
  [
    'limits our rate, in its words',
    (res) => {
      res
        .setHeader('retry-after', '30')
        .setHeader('x-ratelimit-remaining', '0')
        .setHeader('x-request-id', 'r1')
      sendJson(res, WORDS, 429)
    },
    {
      code: -32003,
      message: 'The MCP server answered 429: Slow down: 40 a minute.',
      data: { reason: 'mcp_rate_limited', upstream_status: 429, retry_after: '30', resource: 'up' },
    },
    { reason: 'mcp_rate_limited', upstream_status: 429, upstream_request_id: 'r1' },
    { 'retry-after': '30', 'x-ratelimit-remaining': '0' },
  ],
  [
    'limits our rate without a word',
    (res) => void res.writeHead(429, { 'retry-after': 'Fri, 27 Nov 2026 07:28:00 GMT' }).end(),
    { code: -32003, data: { reason: 'mcp_rate_limited', retry_after: 'Fri, 27 Nov 2026 07:28:00 GMT' } },
    { reason: 'mcp_rate_limited', upstream_status: 429 },
    { 'retry-after': 'Fri, 27 Nov 2026 07:28:00 GMT' },
  ],
  [
    'limits our rate in a JSON-RPC error of a code that is ours',
    (res, told) => {
      res.setHeader('retry-after', '7')
      sendJson(res, error(told.id, -32000, 'Too many', { limit: 40 }), 429)
    },
    {
      code: -32003,
      data: {
        reason: 'mcp_rate_limited',
        retry_after: '7',
        upstream_error: { code: -32000, message: 'Too many', data: { limit: 40 } },
      },
    },
    { reason: 'mcp_rate_limited', upstream_status: 429 },
    { 'retry-after': '7' },
  ],
  [
    'limits our rate in a JSON-RPC error of its own',
    (res, told) => {
      res.setHeader('retry-after', '7')
      sendJson(res, error(told.id, 4290, 'Too many', { limit: 40 }), 429)
    },
    { code: 4290, message: 'Too many', data: { limit: 40 } },
    { error_code: 4290, upstream_status: 429 },
    { 'retry-after': '7' },
  ],
  [
    'is being updated',
    (res) => {
      res.setHeader('retry-after', '120')
      sendJson(res, { detail: 'Maintenance until noon.' }, 503)
    },
    {
      code: -32003,
      message: 'The MCP server answered 503: Maintenance until noon.',
      data: { reason: 'mcp_failed', upstream_status: 503, retry_after: '120' },
    },
    { reason: 'mcp_failed', upstream_status: 503 },
    { 'retry-after': '120' },
  ],
  [
    'limits our rate in a list of one',
    (res) => sendJson(res, [{ error: { code: 429, message: 'Quota of the day is spent.' } }], 429),
    {
      code: -32003,
      message: 'The MCP server answered 429: Quota of the day is spent.',
      data: { reason: 'mcp_rate_limited', upstream_status: 429 },
    },
    { reason: 'mcp_rate_limited', upstream_status: 429 },
    {},
  ],
  [
    'is away behind a page',
    (res) =>
      void res.writeHead(503, { 'content-type': 'text/html', 'retry-after': '5' }).end('<h1>Oops</h1>'),
    { code: -32003, message: /answered with an error/, data: { upstream_status: 503, retry_after: '5' } },
    { reason: 'mcp_failed', upstream_status: 503 },
    { 'retry-after': '5' },
  ],
  [
    'refuses our credentials',
    (res) => {
      res.setHeader('www-authenticate', 'Bearer realm="theirs"')
      sendJson(res, { error: { message: 'Bad token abc' } }, 401)
    },
    { code: -32003, message: /refused this gateway's credentials/, data: { upstream_status: 401 } },
    { reason: 'mcp_failed', upstream_status: 401 },
    { 'x-should-retry': 'false', 'www-authenticate': undefined },
  ],
  [
    'forbids us at large',
    (res) => sendJson(res, { error: { message: 'No' } }, 403),
    { code: -32003, message: /refused this gateway's credentials/, data: { upstream_status: 403 } },
    { reason: 'mcp_failed', upstream_status: 403 },
    { 'x-should-retry': 'false' },
  ],
  [
    'forbids this very call',
    (res, told) => sendJson(res, error(told.id, 4030, 'That folder is closed.', { folder: 'x' }), 403),
    { code: 4030, message: 'That folder is closed.', data: { folder: 'x' } },
    { error_code: 4030, upstream_status: 403 },
    {},
  ],
  [
    'finds the parameters wrong',
    (res, told) => sendJson(res, error(told.id, -32602, 'No such path', { path: '/x' }), 400),
    { code: -32602, message: 'No such path', data: { path: '/x' } },
    { error_code: -32602, upstream_status: 400 },
    {},
  ],
]

await t.test(
  'an HTTP error of a server is told as that of a provider is: when to come back, its words, its status',
  async (t) => {
    const { stage, bot, act } = await behind(t)
    for (const [what, answer, told, , headers] of HTTP_ERRORS) {
      act(answer)
      const answered = await stage.callTool(bot, 'up.go', {}, { id: what })
      t.equal(answered.status, 200, what)
      t.match(answered.json, { id: what, error: told }, what)
      t.match(answered.headers, headers, what)
      t.notMatch(answered.text, /Bad token abc|<h1>/, what)
    }
    const rows = await eventually(
      () => stage.rows({ action: 'mcp_tools_call', order: 'asc', status: 'error' }),
      (all) => all.length === HTTP_ERRORS.length,
    )
    t.match(
      rows.map(({ detail }) => detail),
      HTTP_ERRORS.map(([, , , row]) => row),
    )
  },
)

await t.test('words of a server that quote our credentials, or are long, are not passed on', async (t) => {
  const secret = 'token-of-the-operator'
  const stage = await mcpStage(t, { env: { MCP_SECRET_UP: secret } })
  const server = await toolServer(t, TOOLS)
  const resource = await stage.register('up', server, {
    auth_type: 'bearer',
    auth_secret_ref: 'env:MCP_SECRET_UP',
  })
  const bot = await stage.enroll('bot', ['mcp.tools.call'])
  await stage.bind(bot, resource)
  for (const message of [`Slow down, ${secret}`, 'x'.repeat(20_000)]) {
    server.act = legacyWith(TOOLS, (res) => {
      res.setHeader('retry-after', '3').setHeader('x-ratelimit-key', message.slice(0, 100))
      sendJson(res, { error: { message } }, 429)
    })
    const { json, headers } = await stage.callTool(bot, 'up.go')
    t.match(json.error, { code: -32003, message: /is rate limiting this gateway/ })
    t.notMatch(JSON.stringify([json, headers]), secret)
  }
})

await t.test('an answer that is lost is an unknown outcome, for the caller and in the row', async (t) => {
  const { stage, bot, act } = await behind(t)
  act((res) => {
    sse(res)(NOTE)
    res.end('id: e1\nretry: 50\ndata:\n\n')
  })
  const { text } = await stage.callTool(bot, 'up.go')
  t.match(JSON.parse(/^data: (.*error.*)$/m.exec(text)?.[1] ?? '{}'), {
    error: { code: -32003, message: /may have done the work/, data: { outcome: 'unknown' } },
  })
  const plain = await stage.callTool(bot, 'up.go', {}, { headers: { accept: 'application/json' } })
  t.match(plain.json.error, { code: -32003, data: { outcome: 'unknown' } })
  const rows = await eventually(
    () => stage.rows({ action: 'mcp_tools_call', status: 'unknown' }),
    (all) => all.length === 2,
  )
  t.match(rows, [{ provider: 'up' }, { provider: 'up' }])
})

await t.test(
  'a response that was written is whole, whoever then resets the connection or hangs up',
  async (t) => {
    const { stage, bot, act } = await behind(t)
    act((res, told) => {
      sse(res)(NOTE)
      res.write(`data: ${JSON.stringify(result(told, { content: [] }))}\n\n`, () => res.destroy())
    })
    const reset = await openStream(stage, bot, 'tools/call', { params: { name: 'up.go' } })
    t.match([await reset.next(), await reset.next()], [NOTE, { result: { content: [] } }])
    t.equal(await reset.next(), undefined, 'no second response')
    t.ok(await reset.clean)
    reset.hangUp()
    act((res, told) => sse(res)(result(told, { content: [] })))
    const left = await openStream(stage, bot, 'tools/call', { params: { name: 'up.go' } })
    t.match(await left.next(), { result: { content: [] } })
    left.hangUp()
    const rows = await eventually(
      () => stage.rows({ action: 'mcp_tools_call', order: 'asc', limit: 100 }),
      (all) => all.length === 4,
    )
    for (const { status, detail } of rows.filter((row) => row.status !== 'allowed'))
      t.match({ status, detail }, { status: 'success', detail: { ending: 'complete' } })
  },
)

await t.test('an event that is cut in half by a shutdown is not read as one with the error', async (t) => {
  const { stage, bot, act } = await behind(t)
  const content = [{ type: 'text', text: 'x'.repeat(9_000_000) }]
  act((res, told) => sse(res)(result(told, { content })))
  const connection = await rawConnect(t, stage, bot)
  const { headers, body } = request('tools/call', { params: { name: 'up.go' } })
  const fields = ['content-type: application/json', ...Object.entries(headers).map((pair) => pair.join(': '))]
  connection.send(requestBytes('POST', '/v1/mcp', fields, JSON.stringify(body)))
  await connection.until('data: {')
  connection.socket.pause()
  const closed = stage.close(0)
  connection.socket.resume()
  const received = await connection.closed
  await closed
  const events = received.replaceAll(/\r\n[\da-f]+\r\n/g, '')
  t.notOk(/[^\n]\n?event: message/.test(events.slice(events.indexOf('xxx'))))
})
