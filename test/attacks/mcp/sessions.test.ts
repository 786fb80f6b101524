import type { ServerResponse } from 'node:http'
import t from 'tap'
import type { Identity, Json } from '../../support/gateway.ts'
import { openStream } from '../../support/mcp/open-stream.ts'
import { type Act, result, sendJson, sse, type Told } from '../../support/mcp/raw-upstream.ts'
import { legacyWith, mcpStage, type Stage, tool, toolServer } from '../../support/mcp/stage.ts'
import { eventually } from '../../support/settled.ts'

const INITIALIZE = {
  protocolVersion: '2025-11-25',
  capabilities: { elicitation: {}, sampling: {} },
  clientInfo: { name: 'test', version: '1' },
}

async function initialized(stage: Stage, who: Identity, at = ''): Promise<Record<string, string>> {
  const { status, headers } = await stage.rpc(who, 'initialize', { params: INITIALIZE, at })
  if (status !== 200) throw new Error(`initialize: ${status}`)
  return { 'mcp-session-id': String(headers['mcp-session-id']), 'mcp-protocol-version': '2025-11-25' }
}

/** A server that asks its caller before it answers a call. `answers` holds what came back. */
function asking() {
  const open: { res: ServerResponse; told: Told; send: (value: unknown) => void }[] = []
  const answers: Json[] = []
  const act: Act = (res, told) => {
    const { message } = told
    if (message.method === undefined) {
      answers.push({ ...message, session: told.session })
      res.writeHead(202).end()
      for (const { send, res: stream, told: call } of open.splice(0)) {
        send(result(call, { content: [{ type: 'text', text: 'done' }] }))
        stream.end()
      }
      return
    }
    const send = sse(res)
    open.push({ res, told, send })
    send({
      jsonrpc: '2.0',
      id: 0,
      method: 'elicitation/create',
      params: { message: 'Sure?', requestedSchema: {} },
    })
  }
  return { act, answers, open }
}

async function withAsking(t: Parameters<typeof mcpStage>[0]) {
  const stage = await mcpStage(t)
  const { act, answers } = asking()
  const tools = [tool('ask')]
  const server = await toolServer(t, tools)
  // A response of ours has no id of a request, so it must be told from a notification here.
  const plain = legacyWith(tools, act)
  server.act = (res, told) => (told.message.result || told.message.error ? act(res, told) : plain(res, told))
  const resource = await stage.register('asks', server, { required_capability: 'asks.use' })
  const bot = await stage.enroll('bot', ['asks.use'])
  const eve = await stage.enroll('eve', ['asks.use'])
  await stage.bind(bot, resource)
  await stage.bind(eve, resource)
  return { stage, server, answers, bot, eve, resource }
}

await t.test('threat 6: a session id opens nothing for another principal, and ends nothing', async (t) => {
  const stage = await mcpStage(t)
  const [bot, eve] = [
    await stage.enroll('bot', ['mcp.tools.list']),
    await stage.enroll('eve', ['mcp.tools.list']),
  ]
  const headers = await initialized(stage, bot)
  t.equal((await stage.rpc(bot, 'tools/list', { headers })).status, 200)
  const stolen = await stage.rpc(eve, 'tools/list', { headers })
  t.equal(stolen.status, 404)
  t.notOk(stolen.json.result)
  const unknown = await stage.rpc(eve, 'tools/list', { headers: { 'mcp-session-id': 'made-up' } })
  t.equal(unknown.status, 404, 'nor can it be told from one that does not exist')
  t.same({ ...stolen.json.error, data: null }, { ...unknown.json.error, data: null })
  t.equal((await stage.call(eve, 'DELETE', '/v1/mcp', { headers })).status, 404)
  t.equal((await stage.rpc(bot, 'ping', { headers })).status, 200)
  t.equal((await stage.call(bot, 'DELETE', '/v1/mcp', { headers })).status, 204)
  t.equal((await stage.rpc(bot, 'ping', { headers })).status, 404, 'after DELETE it is gone')
})

await t.test('threat 6: a session of one door is none at another', async (t) => {
  const { stage, bot } = await withAsking(t)
  const scoped = await initialized(stage, bot, '/asks')
  t.equal((await stage.rpc(bot, 'ping', { headers: scoped, at: '/asks' })).status, 200)
  t.equal((await stage.rpc(bot, 'ping', { headers: scoped })).status, 404)
})

await t.test(
  'threat 6: two principals, and two sessions of one, never share an upstream session',
  async (t) => {
    const { stage, server, bot, eve } = await withAsking(t)
    server.act = legacyWith([tool('ask')])
    const [first, second] = [await initialized(stage, bot), await initialized(stage, bot)]
    for (const headers of [first, second, first]) await stage.callTool(bot, 'asks.ask', {}, { headers })
    await stage.callTool(bot, 'asks.ask')
    await stage.callTool(eve, 'asks.ask')
    const [a, b, c, d, e] = server.of('tools/call').map(({ session }) => session)
    t.equal(a, c)
    t.equal(new Set([a, b, d, e]).size, 4)
  },
)

await t.test(
  'elicitation: the question reaches the caller, its answer the upstream that asked, through the gate again',
  async (t) => {
    const { stage, bot, answers } = await withAsking(t)
    const headers = await initialized(stage, bot)
    const stream = await openStream(stage, bot, 'tools/call', {
      headers,
      params: { name: 'asks.ask' },
      id: 'call-1',
    })
    const question = await stream.next()
    t.match(question, { method: 'elicitation/create', params: { message: 'Sure?' } })
    t.not(question.id, 0, 'under an id of ours')
    const answer = { jsonrpc: '2.0', id: question.id, result: { action: 'accept', content: { sure: true } } }
    t.equal((await stage.call(bot, 'POST', '/v1/mcp', { headers, body: answer })).status, 202)
    t.match(await stream.next(), { id: 'call-1', result: { content: [{ text: 'done' }] } })
    t.ok(await stream.clean)
    t.match(answers, [{ id: 0, result: { action: 'accept', content: { sure: true } } }])
    const rows = await eventually(
      () => stage.rows({ action: 'mcp_response' }),
      (found) => found.length === 2,
    )
    t.same(rows.map(({ status }) => status).sort(), ['allowed', 'success'])
    t.same([...new Set(rows.map(({ tool: named }) => named))], ['asks.ask'], 'the tool whose call it answers')
    const decision = rows.find(({ status }) => status === 'allowed')
    t.match(decision?.detail, {
      resource: 'asks',
      authority: { resource: { revision: 2 }, binding: /^mcpb_/ },
    })
    stream.hangUp()
  },
)

await t.test(
  'threat 6: nobody answers a question that was put to somebody else, and nobody answers twice',
  async (t) => {
    const { stage, bot, eve, answers } = await withAsking(t)
    const headers = await initialized(stage, bot)
    const other = await initialized(stage, bot)
    const evesOwn = await initialized(stage, eve)
    const stream = await openStream(stage, bot, 'tools/call', { headers, params: { name: 'asks.ask' } })
    const { id } = await stream.next()
    const body = { jsonrpc: '2.0', id, result: { action: 'accept' } }
    const send = (who: Identity, own: Record<string, string>) =>
      stage.call(who, 'POST', '/v1/mcp', { headers: own, body })
    t.equal((await send(eve, evesOwn)).status, 400)
    t.equal((await send(eve, headers)).status, 404)
    t.equal((await send(bot, other)).status, 400, 'another session of the same principal')
    t.equal((await send(bot, {})).status, 400, 'no session at all')
    await stage.grant(bot, ['x.y'])
    t.match((await send(bot, headers)).json.error, {
      code: -32005,
      data: { required_capability: 'asks.use' },
    })
    await stage.grant(bot, ['asks.use'])
    t.same(answers, [])
    t.equal((await send(bot, headers)).status, 202)
    t.equal((await send(bot, headers)).status, 400)
    t.equal(answers.length, 1)
    await stream.next()
    stream.hangUp()
  },
)

await t.test(
  'a caller that cannot be asked is not: the upstream hears so, and the call goes on',
  async (t) => {
    const { stage, bot, answers, server } = await withAsking(t)
    for (const modern of [false, true]) {
      const { json, text } = await stage.callTool(bot, 'asks.ask', {}, { modern })
      t.match(json ?? text, modern || json ? /done/ : /done/)
      t.match(JSON.stringify(json ?? text), /done/)
    }
    t.match(answers, [
      { id: 0, error: { code: -32601 } },
      { id: 0, error: { code: -32601 } },
    ])
    const declared = server.of('initialize').map(({ message }) => (message.params as Json).capabilities)
    t.same(declared.at(-1), {}, 'who has not said that it can be asked is not said to')
  },
)

await t.test('notifications/cancelled takes back the caller’s own request, and nobody else’s', async (t) => {
  const stage = await mcpStage(t)
  const server = await toolServer(t, [tool('slow')], (res, told) => {
    if (told.rpc === 'tools/call') sse(res)({ jsonrpc: '2.0', method: 'notifications/progress', params: {} })
    else sendJson(res, result(told))
  })
  const resource = await stage.register('slow', server)
  const bot = await stage.enroll('bot', ['mcp.tools.call'])
  const eve = await stage.enroll('eve', ['mcp.tools.call'])
  await stage.bind(bot, resource)
  const headers = await initialized(stage, bot)
  const stream = await openStream(stage, bot, 'tools/call', { headers, params: { name: 'slow' }, id: 7 })
  await stream.next()
  const cancel = (who: Identity, own: Record<string, string>) =>
    stage.call(who, 'POST', '/v1/mcp', {
      headers: own,
      body: { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 7 } },
    })
  t.equal((await cancel(eve, await initialized(stage, eve))).status, 202)
  t.equal((await cancel(bot, {})).status, 202, 'outside the session it is another request')
  t.equal(server.of('notifications/cancelled').length, 0)
  t.equal((await cancel(bot, headers)).status, 202)
  await stream.clean
  const told = await eventually(
    () => server.of('notifications/cancelled'),
    (list) => list.length > 0,
  )
  t.equal(told.length, 1)
  stream.hangUp()
})

for (const [what, revoke] of [
  ['capability', (s: Stage, bot: Identity) => s.grant(bot, [])],
  [
    'binding',
    (s: Stage, _: Identity, id: string) => s.admin('DELETE', `/v1/admin/mcp-resources/bindings/${id}`),
  ],
  ['principal', (s: Stage, bot: Identity) => s.admin('DELETE', `/v1/admin/agents/${bot.id}`)],
] as const) {
  await t.test(`M-06: an answer that is streaming when the ${what} is taken away is cut`, async (t) => {
    const stage = await mcpStage(t)
    const server = await toolServer(t, [tool('slow')], (res) => {
      sse(res)({ jsonrpc: '2.0', method: 'notifications/message', params: { level: 'info', data: 'tick' } })
    })
    const resource = await stage.register('slow', server)
    const bot = await stage.enroll('bot', ['mcp.tools.call'])
    const { binding_id: id } = await stage.bind(bot, resource)
    const stream = await openStream(stage, bot, 'tools/call', { params: { name: 'slow' } })
    t.match(await stream.next(), { method: 'notifications/message' })
    await revoke(stage, bot, id)
    t.notOk(await stream.clean, 'it did not end as if it were whole')
    const rows = await eventually(
      () => stage.rows({ action: 'mcp_tools_call', status: 'truncated' }),
      (found) => found.length === 1,
    )
    t.match(rows, [{ tool: 'slow.slow', detail: { ending: 'revoked' } }])
    stream.hangUp()
  })
}
