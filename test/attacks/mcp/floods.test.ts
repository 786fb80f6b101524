import t from 'tap'
import { MODERN_VERSION } from '../../../proxy/mcp/protocol/versions.ts'
import { agentOf, type Json } from '../../support/gateway.ts'
import { type Act, legacy, rawMcp, result, sendJson, sse } from '../../support/mcp/raw-upstream.ts'
import { called, mcpStage, request, tool, toolServer } from '../../support/mcp/stage.ts'

const INITIALIZE = {
  protocolVersion: '2025-11-25',
  capabilities: {},
  clientInfo: { name: 'x', version: '1' },
}

await t.test('threat 14: what a session keeps is small, for a session requires no capability', async (t) => {
  const stage = await mcpStage(t)
  const server = await toolServer(t, [tool('go')])
  const resource = await stage.register('go', server)
  const bot = await stage.enroll('bot', ['mcp.tools.call'])
  await stage.bind(bot, resource)
  const capabilities = { experimental: { a: Array.from({ length: 10_000 }, () => ({})) } }
  const large = await stage.rpc(bot, 'initialize', { params: { ...INITIALIZE, capabilities } })
  t.match(large.json.error, { code: -32602 })
  t.notOk(large.headers['mcp-session-id'])
  const clientInfo = { name: 'x', version: '1', icons: [{ src: `data:,${'x'.repeat(20_000)}` }] }
  const { headers } = await stage.rpc(bot, 'initialize', { params: { ...INITIALIZE, clientInfo } })
  const own = { 'mcp-session-id': String(headers['mcp-session-id']) }
  t.ok((await stage.callTool(bot, 'go', {}, { headers: own })).json.result)
  const told: Json = server.of('initialize').at(-1)?.message.params
  t.equal(told.clientInfo.name, 'sallyport', 'a card that is too large was not kept')
})

await t.test(
  'row 23: arguments that would hold up everybody are refused before they are hashed',
  async (t) => {
    const stage = await mcpStage(t)
    const bot = await stage.enroll('bot', [])
    const call = (count: number) =>
      stage.callTool(bot, 'http.get', { url: Array.from({ length: count }, () => 0) })
    t.equal((await call(250_000)).json.error.code, -32602)
    t.equal((await call(249_990)).json.error.code, -32005)
  },
)

/** A server of the stateless revision whose lists `act` answers. */
const listing =
  (act: Act): Act =>
  (res, told) => {
    const capabilities = { tools: {}, prompts: {} }
    if (told.rpc === 'server/discover')
      sendJson(
        res,
        result(told, { resultType: 'complete', supportedVersions: [MODERN_VERSION], capabilities }),
      )
    else if (told.rpc === 'tools/list') sendJson(res, result(told, { resultType: 'complete', tools: [] }))
    else return act(res, told)
  }

await t.test('threat 38: a list is gathered once round and no further, and only so much of it', async (t) => {
  const stage = await mcpStage(t)
  const pages: Json[] = []
  let page = 0
  const server = await rawMcp(
    t,
    listing((res, told) => {
      const { prompts = [], ...rest } = pages[page % pages.length] ?? {}
      const own = prompts.map((one: Json) => ({ ...one, name: `${one.name}${page}` }))
      sendJson(res, result(told, { resultType: 'complete', prompts: own, ...rest }))
      page += 1
    }),
  )
  const resource = await stage.register('docs', server)
  const bot = await stage.enroll('bot', ['mcp.prompts.get'])
  await stage.bind(bot, resource)
  const gathered = async (...given: Json[]) => {
    page = 0
    pages.splice(0, pages.length, ...given)
    const { json } = await stage.rpc(bot, 'prompts/list')
    return json.error?.code ?? json.result.prompts.length
  }
  const prompts = [{ name: 'p' }]
  for (const nextCursor of [undefined, null, '']) t.equal(await gathered({ prompts, nextCursor }), 1)
  const circle = ['a', 'b', 'a', 'b'].map((nextCursor) => ({ prompts, nextCursor }))
  t.equal(await gathered(...circle), 3)
  t.equal(await gathered({ prompts, nextCursor: { a: 1 } }), 1)
  const many = Array.from({ length: 99 }, (_, index) => ({ prompts, nextCursor: `c${index}` }))
  t.equal(await gathered(...many), 20)
  const large = [{ name: 'p', description: 'x'.repeat(1024 * 1024) }]
  const heavy = Array.from({ length: 9 }, (_, index) => ({ prompts: large, nextCursor: `c${index}` }))
  t.equal(await gathered(...heavy), 3, 'not a fifth mebibyte of one server')
})

await t.test(
  'one odd prompt, or one page that fails, costs a list nothing else, at both doors',
  async (t) => {
    const stage = await mcpStage(t)
    const odd = [null, 'x', {}, { name: null }, { name: 7 }]
    const prompts = [{ name: 'a', title: null }, ...odd, { name: 'b', arguments: [null, { name: 'c' }] }]
    const pages: Json = { first: { prompts, nextCursor: 'x' } }
    const server = await rawMcp(
      t,
      listing((res, told) => {
        const { cursor } = told.message.params as Json
        if (cursor !== undefined) res.writeHead(500).end()
        else sendJson(res, result(told, { resultType: 'complete', ...pages.first }))
      }),
    )
    const bot = await stage.enroll('bot', ['mcp.prompts.get'])
    await stage.bind(bot, await stage.register('docs', server))
    t.same((await stage.rpc(bot, 'prompts/list')).json.result, {
      prompts: [{ name: 'docs.a' }, { name: 'docs.b', arguments: [{ name: 'c' }] }],
    })
    for (const nextCursor of [null, {}, 7]) {
      pages.first = { prompts, nextCursor }
      const { json } = await stage.rpc(bot, 'prompts/list', { at: '/docs' })
      t.same(json.result.prompts, [{ name: 'a' }, { name: 'b', arguments: [{ name: 'c' }] }])
      t.notOk('nextCursor' in json.result, 'a client would refuse the whole list because of it')
    }
    pages.first = { prompts: null }
    t.same((await stage.rpc(bot, 'prompts/list')).json.result.prompts, [])
    t.same((await stage.rpc(bot, 'prompts/list', { at: '/docs' })).json.result.prompts, [])
  },
)

await t.test('threat 38: a server that asks without end is left, whoever would have to answer', async (t) => {
  const stage = await mcpStage(t)
  let answers = 0
  const server = await rawMcp(t)
  const plain = legacy({
    tools: [tool('go')],
    act: (res, told) => {
      if (told.rpc === 'tools/list') return sendJson(res, result(told, { tools: [tool('go')] }))
      const send = sse(res)
      for (let id = 0; id < 2_000; id += 1) send({ jsonrpc: '2.0', id, method: 'ping' })
      send(result(told, {}))
      res.end()
    },
  })
  server.act = (res, told) => {
    if (told.message.method !== undefined || told.method === 'DELETE') return plain(res, told)
    answers += 1
    res.writeHead(202).end()
  }
  const resource = await stage.register('go', server)
  const bot = await stage.enroll('bot', ['mcp.tools.call'])
  await stage.bind(bot, resource)
  const { json } = await stage.callTool(bot, 'go', {}, { headers: { accept: 'application/json' } })
  t.equal(json.error.code, -32003)
  t.equal(answers, 1024)
})

await t.test('threat 38: of a list of tools larger than any honest one only a part is kept', async (t) => {
  const stage = await mcpStage(t)
  const server = await toolServer(t, [tool('go')])
  const resource = await stage.register('go', server)
  const large = Array.from({ length: 25 }, (_, index) =>
    tool(`t${index}`, { description: 'x'.repeat(200_000) }),
  )
  server.act = legacy({ tools: large })
  const { skipped_tools: skipped, tools } = await stage.refresh(resource)
  t.match(skipped[0], { name: 't20', reason: /its list of tools is too large/ })
  t.equal(tools.length, 21, 'four mebibytes')
  t.same(called(server), [])
})

await t.test('row 23: while many tools are judged, calls go on', async (t) => {
  const stage = await mcpStage(t)
  const properties = Object.fromEntries(
    Array.from({ length: 10 }, (_, index) => [`p${index}`, { type: 'string', pattern: `^a{1,9}${index}$` }]),
  )
  const tools = Array.from({ length: 1_500 }, (_, index) =>
    tool(`t${index}`, { inputSchema: { type: 'object', properties } }),
  )
  const listed = Promise.withResolvers<void>()
  const server = await rawMcp(t, legacy({ tools }))
  const resource = await stage.register('many', server)
  const plain = server.act
  server.act = (res, told) => {
    if (told.rpc === 'tools/list') res.once('finish', listed.resolve)
    return plain(res, told)
  }
  const bot = await stage.enroll('bot', [])
  const agent = agentOf(stage.ca, bot, true)
  const ping = () => stage.call(bot, 'POST', '/v1/mcp', { ...request('ping', {}), agent })
  await ping()
  let over = false
  const refreshed = stage.refresh(resource).then(() => {
    over = true
  })
  await listed.promise
  // In one piece, all would be judged before the first of them is heard.
  let answered = 0
  for (; !over; answered += 1) t.equal((await ping()).status, 200)
  t.ok(answered > 5, `${answered} meanwhile`)
  await refreshed
  agent.destroy()
})
