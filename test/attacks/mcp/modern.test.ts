import t from 'tap'
import { META_KEYS, MODERN_VERSION } from '../../../proxy/mcp/protocol/versions.ts'
import type { Json } from '../../support/gateway.ts'
import { type Act, rawMcp, result, sendJson } from '../../support/mcp/raw-upstream.ts'
import { called, legacyWith, mcpStage, tool, toolServer } from '../../support/mcp/stage.ts'

/** A server of the stateless revision with these tools, whose other requests `act` answers. */
const modernWith =
  (tools: readonly Json[], act: Act): Act =>
  (res, told) => {
    const capabilities = { tools: {}, resources: {}, prompts: {} }
    if (told.rpc === 'server/discover') {
      sendJson(
        res,
        result(told, { resultType: 'complete', supportedVersions: [MODERN_VERSION], capabilities }),
      )
    } else if (told.rpc === 'tools/list') sendJson(res, result(told, { resultType: 'complete', tools }))
    else return act(res, told)
  }

const DONE = { resultType: 'complete', content: [{ type: 'text', text: 'done' }] }
const done: Act = (res, told) => sendJson(res, result(told, DONE))

const REGION = {
  type: 'object',
  properties: {
    region: { type: 'string', 'x-mcp-header': 'Region' },
    n: { type: 'integer', 'x-mcp-header': 'N' },
  },
}

await t.test(
  'x-mcp-header: what a header repeats is what the body says, and the upstream gets it from the body',
  async (t) => {
    const stage = await mcpStage(t)
    const server = await rawMcp(t, modernWith([tool('sql', { inputSchema: REGION })], done))
    const resource = await stage.register('db', server)
    const bot = await stage.enroll('bot', ['mcp.tools.call'])
    await stage.bind(bot, resource)
    const ask = (args: Json, headers: Record<string, string>) =>
      stage.callTool(bot, 'db.sql', args, { modern: true, headers })
    for (const headers of [
      {},
      { 'mcp-param-region': 'eu' },
      { 'mcp-param-region': 'us', 'mcp-param-n': '1' },
      { 'mcp-param-region': 'eu', 'mcp-param-n': '2' },
      { 'mcp-param-region': 'eu', 'mcp-param-n': 'one' },
      { 'mcp-param-region': '=?base64?dXM=?=', 'mcp-param-n': '1' },
      { 'mcp-param-region': '=?base64?###?=', 'mcp-param-n': '1' },
    ]) {
      const { status, json } = await ask({ region: 'eu', n: 1 }, headers)
      t.match([status, json.error?.code], [400, -32020], JSON.stringify(headers))
    }
    t.equal(
      (await ask({}, { 'mcp-param-region': 'eu' })).json.error.code,
      -32020,
      'a header without its argument',
    )
    t.same(called(server), [])
    t.ok((await ask({ region: 'eu', n: 1 }, { 'mcp-param-region': 'eu', 'mcp-param-n': '1.0' })).json.result)
    t.ok(
      (
        await ask(
          { region: 'ü' },
          { 'mcp-param-region': `=?base64?${Buffer.from('ü').toString('base64')}?=` },
        )
      ).json.result,
    )
    t.ok(
      (await stage.callTool(bot, 'db.sql', { region: 'a\r\nevil: 1' })).json.result,
      'a legacy caller has no such headers',
    )
    const sent = server.of('tools/call').map(({ headers }) => headers)
    t.match(sent[0], { 'mcp-param-region': 'eu', 'mcp-param-n': '1', 'mcp-name': 'sql' })
    t.match(sent[2], { 'mcp-param-region': `=?base64?${Buffer.from('a\r\nevil: 1').toString('base64')}?=` })
    t.notOk(sent[2]?.evil)
  },
)

await t.test('a tool whose annotations break their rules is neither listed nor called', async (t) => {
  const stage = await mcpStage(t)
  const bad = { type: 'object', properties: { a: { type: 'number', 'x-mcp-header': 'A' } } }
  const server = await rawMcp(t, modernWith([tool('bad', { inputSchema: bad }), tool('good')], done))
  const resource = await stage.register('db', server)
  const bot = await stage.enroll('bot', ['mcp.tools.call', 'mcp.tools.list'])
  await stage.bind(bot, resource)
  t.same(await stage.listed(bot), ['db.good'])
  t.equal((await stage.callTool(bot, 'db.bad')).json.error.code, -32006)
  t.same(called(server), [])
})

await t.test(
  'threat 6: the state of one caller’s round is worth nothing to another, nor for another call',
  async (t) => {
    const stage = await mcpStage(t)
    const asks: Act = (res, told) => {
      const params = told.message.params as Json
      if (params.requestState === 'step-1') return done(res, told)
      const inputRequests = { sure: { method: 'elicitation/create', params: {} } }
      sendJson(res, result(told, { resultType: 'input_required', inputRequests, requestState: 'step-1' }))
    }
    const server = await rawMcp(t, modernWith([tool('book'), tool('pay')], asks))
    const resource = await stage.register('trip', server)
    const bot = await stage.enroll('bot', ['mcp.tools.call'])
    const eve = await stage.enroll('eve', ['mcp.tools.call'])
    await stage.bind(bot, resource)
    await stage.bind(eve, resource)
    const first = (await stage.callTool(bot, 'trip.book', {}, { modern: true })).json.result
    t.match(first, { resultType: 'input_required', inputRequests: { sure: {} } })
    const state: string = first.requestState
    t.not(state, 'step-1')
    const again = (who: typeof bot, name: string, requestState: unknown) =>
      stage.callTool(
        who,
        name,
        {},
        { modern: true, params: { requestState, inputResponses: { sure: { action: 'accept' } } } },
      )
    const before = called(server).length
    for (const [who, name, sent] of [
      [eve, 'trip.book', state],
      [bot, 'trip.pay', state],
      [bot, 'trip.book', 'step-1'],
      [bot, 'trip.book', `${state}x`],
      [bot, 'trip.book', state.slice(1)],
    ] as const) {
      t.equal((await again(who, name, sent)).json.error?.code, -32602, `${who.id} ${name} ${sent}`)
    }
    t.equal(called(server).length, before, 'nothing of it went upstream')
    t.match((await again(bot, 'trip.book', state)).json.result, { resultType: 'complete' })
    t.match(called(server).at(-1), { requestState: 'step-1', inputResponses: { sure: { action: 'accept' } } })
    const rows = await stage.rows({ action: 'mcp_tools_call', status: 'allowed' })
    t.equal(rows.length, 2, 'each round is a decision of its own')
    const legacy = await stage.callTool(bot, 'trip.book')
    t.equal(legacy.json.error.code, -32003, 'an older client cannot be asked so')
  },
)

await t.test('between the eras each side gets what its revision demands', async (t) => {
  const stage = await mcpStage(t)
  const modern = await rawMcp(t, modernWith([tool('go')], done))
  const legacy = await toolServer(t, [tool('go')])
  const [m, l] = [await stage.register('m', modern), await stage.register('l', legacy)]
  t.match([m.era, l.era], ['modern', 'legacy'])
  const bot = await stage.enroll('bot', ['mcp.tools.call'])
  await stage.bind(bot, m)
  await stage.bind(bot, l)
  const _meta = { progressToken: 7, 'acme/x': 1 }
  t.ok((await stage.callTool(bot, 'm.go', {}, { params: { _meta } })).json.result)
  const up: Json = modern.of('tools/call')[0]
  t.match(up.headers, {
    'mcp-protocol-version': MODERN_VERSION,
    'mcp-method': 'tools/call',
    'mcp-name': 'go',
  })
  t.same(up.message.params._meta, {
    ..._meta,
    [META_KEYS.version]: MODERN_VERSION,
    [META_KEYS.capabilities]: {},
    [META_KEYS.clientInfo]: up.message.params._meta[META_KEYS.clientInfo],
  })
  const { result: answer } = (await stage.callTool(bot, 'l.go', {}, { modern: true, params: { _meta } })).json
  t.equal(answer.resultType, 'complete')
  t.same(
    called(legacy).map((params) => params._meta),
    [_meta],
    'without what it does not know',
  )
})

await t.test(
  'a server of both eras is spoken to in the older one by a caller that has initialized, so that it can ask',
  async (t) => {
    const stage = await mcpStage(t)
    const tools = [tool('go')]
    const older = legacyWith(tools)
    const newer = modernWith(tools, done)
    const server = await rawMcp(t, (res, told) =>
      told.headers['mcp-protocol-version'] === MODERN_VERSION ? newer(res, told) : older(res, told),
    )
    const resource = await stage.register('both', server)
    t.equal(resource.era, 'modern')
    const bot = await stage.enroll('bot', ['mcp.tools.call'])
    await stage.bind(bot, resource)
    const params = {
      protocolVersion: '2025-11-25',
      capabilities: { elicitation: { form: {} }, sampling: {}, roots: {} },
      clientInfo: { name: 'test', version: '1' },
    }
    const opened = await stage.rpc(bot, 'initialize', { params })
    const headers = { 'mcp-session-id': String(opened.headers['mcp-session-id']) }
    for (const options of [{ headers }, {}, { modern: true }]) {
      t.ok((await stage.callTool(bot, 'both.go', {}, options)).json.result)
    }
    t.same(
      server.of('tools/call').map((told) => told.headers['mcp-protocol-version']),
      ['2025-11-25', MODERN_VERSION, MODERN_VERSION],
    )
    const last = server.of('initialize').at(-1)
    t.same((last?.message.params ?? {}) as Json, {
      ...params,
      // Roots are asked for on a stream that the gateway does not open.
      capabilities: { elicitation: { form: {} }, sampling: {} },
    })
  },
)

await t.test('caching: what depends on who asks is nobody else’s, whatever the upstream says', async (t) => {
  const stage = await mcpStage(t)
  const server = await rawMcp(
    t,
    modernWith([tool('go')], (res, told) =>
      sendJson(
        res,
        result(told, {
          resultType: 'complete',
          contents: [],
          prompts: [],
          ttlMs: 60_000,
          cacheScope: 'public',
        }),
      ),
    ),
  )
  const resource = await stage.register('m', server)
  const bot = await stage.enroll('bot', ['mcp.tools.list', 'mcp.resources.read', 'mcp.prompts.get'])
  await stage.bind(bot, resource)
  const modern = true
  const read = await stage.rpc(bot, 'resources/read', { modern, params: { uri: 'a://b' } })
  t.match(read.json.result, { ttlMs: 60_000, cacheScope: 'private' })
  t.match((await stage.rpc(bot, 'prompts/list', { modern, at: '/m' })).json.result, { cacheScope: 'private' })
  t.match((await stage.rpc(bot, 'prompts/list', { modern })).json.result, {
    cacheScope: 'private',
    resultType: 'complete',
  })
  server.act = modernWith([tool('go')], (res, told) => sendJson(res, result(told, { contents: [] })))
  const unsaid = await stage.rpc(bot, 'resources/read', { modern, params: { uri: 'a://b' } })
  t.match(unsaid.json.result, { ttlMs: 0, cacheScope: 'private' }, 'also where it says nothing')
  const list = (await stage.rpc(bot, 'tools/list', { modern })).json.result
  t.match(list, { resultType: 'complete', ttlMs: 0, cacheScope: 'private' })
})

await t.test(
  'prompts and resources stand behind the same binding and a capability of their own',
  async (t) => {
    const stage = await mcpStage(t)
    const act: Act = (res, told) => {
      const lists = {
        prompts: [{ name: 'p', x: 1 }],
        resources: [{ uri: 'a://1', name: 'one' }],
        resourceTemplates: [],
      }
      sendJson(
        res,
        result(told, {
          resultType: 'complete',
          ...lists,
          messages: [],
          contents: [],
          completion: { values: [] },
        }),
      )
    }
    const [one, two] = [await rawMcp(t, modernWith([], act)), await rawMcp(t, modernWith([], act))]
    const [a, b] = [await stage.register('a', one), await stage.register('b', two)]
    const bot = await stage.enroll('bot', ['mcp.prompts.get'])
    await stage.bind(bot, a)
    const code = async (method: string, params: Json, at = ''): Promise<unknown> => {
      const { json } = await stage.rpc(bot, method, { params, at })
      return json.error?.code ?? json.result
    }
    const names = async () => ((await code('prompts/list', {})) as Json).prompts.map(({ name }: Json) => name)
    t.same(await names(), ['a.p'])
    t.match(await code('prompts/get', { name: 'a.p' }), { messages: [] })
    t.match(one.of('prompts/get'), [{ message: { params: { name: 'p' } } }])
    t.equal(await code('prompts/get', { name: 'b.p' }), -32000)
    t.equal(await code('prompts/list', {}, '/b'), -32000)
    t.equal(await code('prompts/get', { name: 'nothing.p' }), -32602)
    t.equal(await code('resources/list', {}), -32005)
    t.equal(await code('resources/read', { uri: 'a://1' }), -32005)
    const ref = { type: 'ref/resource', uri: 'a://{x}' }
    t.equal(await code('completion/complete', { ref, argument: { name: 'x', value: '' } }), -32005)
    const prompt = { type: 'ref/prompt', name: 'a.p' }
    t.match(await code('completion/complete', { ref: prompt, argument: { name: 'x', value: '' } }), {
      completion: {},
    })
    t.match(one.of('completion/complete'), [
      { message: { params: { ref: { type: 'ref/prompt', name: 'p' } } } },
    ])

    await stage.grant(bot, ['mcp.resources.read'])
    t.equal(await code('prompts/list', {}), -32005)
    t.match(await code('resources/read', { uri: 'a://1' }), { contents: [] })
    await stage.bind(bot, b)
    t.match(await code('resources/list', {}), { resources: [{ uri: 'a://1' }, { uri: 'a://1' }] })
    t.equal(await code('resources/read', { uri: 'a://1' }), -32602, 'two could be meant: neither is')
    t.match(await code('resources/read', { uri: 'a://1' }, '/b'), { contents: [] })
    t.equal(two.of('resources/read').length, 1)
  },
)
