import t from 'tap'
import type { Json } from '../../support/gateway.ts'
import { error, legacy, rawMcp, result, sendJson } from '../../support/mcp/raw-upstream.ts'
import { mcpStage, type Stage, tool, toolServer } from '../../support/mcp/stage.ts'

/** A server whose lists are these, and that reads every URI as its own. */
interface Library {
  readonly resources?: readonly string[]
  readonly templates?: readonly string[]
  readonly tools?: readonly Json[]
  readonly capabilities?: Json
}

const CAPABILITIES = { tools: {}, resources: {}, completions: {} }

async function library(t: Parameters<typeof rawMcp>[0], { tools = [], capabilities, ...own }: Library) {
  const { resources = [], templates = [] } = own
  const server = await rawMcp(
    t,
    legacy({
      capabilities: capabilities ?? CAPABILITIES,
      tools,
      act: (res, told) => {
        const params = told.message.params as Json
        if (told.rpc === 'tools/list') return sendJson(res, result(told, { tools }))
        if (told.rpc === 'resources/list')
          return sendJson(res, result(told, { resources: resources.map((uri) => ({ uri, name: uri })) }))
        if (told.rpc === 'resources/templates/list') {
          const list = templates.map((uriTemplate) => ({ uriTemplate, name: uriTemplate }))
          return sendJson(res, result(told, { resourceTemplates: list }))
        }
        if (told.rpc === 'resources/read')
          return sendJson(res, result(told, { contents: [{ uri: params.uri, text: told.url }] }))
        if (told.rpc === 'completion/complete')
          return sendJson(res, result(told, { completion: { values: ['x'] } }))
        sendJson(res, result(told, {}))
      },
    }),
  )
  return server
}

const HELD = ['mcp.tools.list', 'mcp.tools.call', 'mcp.resources.read', 'mcp.prompts.get']

await t.test(
  'every URI that the common door lists is read there, at the server that listed it',
  async (t) => {
    const stage = await mcpStage(t)
    const page = (uri: string, name: string, _meta: Json = { ui: { resourceUri: uri } }) =>
      tool(name, { _meta })
    const old = await library(t, {
      resources: ['file:///a', 'file:///both', 'demo://static'],
      templates: ['demo://old/{id}', 'demo://{+path}', 'mine://{+path}'],
      tools: [
        page('ui://old/form', 'form'),
        page('ui://old/was', 'was', { 'ui/resourceUri': 'ui://old/was' }),
      ],
    })
    const late = await library(t, {
      resources: ['file:///b', 'file:///both', 'ui://old/form', 'mine://etc/app.yaml'],
      templates: ['demo://old/{id}/late', 'late://{id}', '{+any}'],
      tools: [page('ui://late/w', 'w', { 'openai/outputTemplate': 'ui://late/w' })],
    })
    const mute = await toolServer(t, [tool('x')])
    // Not in the order of their names.
    const zoo = await stage.register('zoo', old)
    const ant = await stage.register('ant', late)
    const bot = await stage.enroll('bot', HELD)
    for (const resource of [zoo, ant, await stage.register('mute', mute)]) await stage.bind(bot, resource)

    const ask = async (method: string, params: Json = {}, modern = false) =>
      (await stage.rpc(bot, method, { params, modern })).json
    const readAt = async (uri: string, modern = false): Promise<string | number> => {
      const before = [old, late].map((server) => server.of('resources/read').length)
      const { result: read, error: failed } = await ask('resources/read', { uri }, modern)
      if (!read) return failed.code
      const [zooNow, antNow] = [old, late].map((server) => server.of('resources/read').length)
      return zooNow === (before[0] ?? 0) + 1 ? 'zoo' : antNow === (before[1] ?? 0) + 1 ? 'ant' : 'nobody'
    }
    t.equal(await readAt('file:///a'), -32602, 'nobody has listed it yet')
    t.equal(await readAt('ui://old/was'), 'zoo', 'a page of a tool is known by its approved definition')
    t.equal(await readAt('ui://late/w'), 'ant')

    for (const modern of [false, true]) {
      const listed = (await ask('resources/list', {}, modern)).result.resources.map(({ uri }: Json) => uri)
      t.same(
        [listed.length, new Set(listed)],
        [
          7,
          new Set([
            'demo://static',
            'file:///a',
            'file:///b',
            'file:///both',
            'ui://old/form',
            'mine://etc/app.yaml',
          ]),
        ],
      )
      await ask('resources/templates/list', {}, modern)
      const right: Readonly<Record<string, string | number>> = {
        'file:///a': 'zoo',
        'file:///b': 'ant',
        // Two could be meant: neither is. And a page is its tool's, whoever lists it.
        'file:///both': -32602,
        'ui://old/form': 'zoo',
        'demo://static': 'zoo',
        'demo://old/7': 'zoo',
        'late://7': 'ant',
        // A closer template, or the URI itself, takes nothing from a server whose template fits it too.
        'demo://old/7/late': -32602,
        'mine://etc/app.yaml': -32602,
        'mine://etc/else.yaml': 'zoo',
        'demo://else/where': 'zoo',
        'file:///nowhere': -32602,
      }
      for (const [uri, owner] of Object.entries(right)) t.equal(await readAt(uri, modern), owner, uri)
    }

    for (const uri of ['file:///both', 'mine://etc/app.yaml', 'demo://old/7/late']) {
      const { message } = (await ask('resources/read', { uri })).error
      t.match(message, '/v1/mcp/ant or /v1/mcp/zoo', 'the refusal names the doors at which it can be read')
    }

    const complete = { argument: { name: 'id', value: '' } }
    const template = { type: 'ref/resource', uri: 'demo://old/{id}/late' }
    t.ok((await ask('completion/complete', { ref: template, ...complete })).result)
    t.equal(late.of('completion/complete').length, 1)
    t.ok((await ask('resources/subscribe', { uri: 'file:///b' })).result)
    t.ok((await ask('resources/unsubscribe', { uri: 'file:///b' })).result)
    t.equal(late.of('resources/subscribe').length, 1)

    const rows = await stage.rows({ action: 'mcp_resources_read', status: 'allowed', limit: 1000 })
    t.ok(
      rows.every(({ detail }) => detail.resource === 'zoo' || detail.resource === 'ant'),
      'each row names the server that was judged',
    )
  },
)

await t.test('a list tells a principal nothing about a server that it is not bound to', async (t) => {
  const stage = await mcpStage(t)
  const vault = await library(t, { resources: ['file:///secret'] })
  const open = await library(t, { resources: ['file:///open'] })
  const other = await library(t, { resources: ['file:///other'] })
  const [locked, free, more] = [
    await stage.register('vault', vault),
    await stage.register('open', open),
    await stage.register('other', other),
  ]
  const bot = await stage.enroll('bot', HELD)
  const eve = await stage.enroll('eve', HELD)
  for (const [who, resource] of [
    [bot, locked],
    [bot, free],
    [eve, free],
    [eve, more],
  ] as const)
    await stage.bind(who, resource)
  const read = async (who: typeof bot, uri: string) =>
    (await stage.rpc(who, 'resources/read', { params: { uri } })).json
  for (const who of [bot, eve]) await stage.rpc(who, 'resources/list')
  t.ok((await read(bot, 'file:///secret')).result)
  t.equal((await read(eve, 'file:///secret')).error.code, -32602)
  t.equal(vault.of('resources/read').length, 1)
  const { binding_id: id } = (await stage.admin('GET', '/v1/admin/mcp-resources/bindings')).json.find(
    (one: Json) => one.agent_id === bot.id && one.resource_name === 'vault',
  )
  await stage.admin('DELETE', `/v1/admin/mcp-resources/bindings/${id}`)
  await read(bot, 'file:///secret')
  t.equal(vault.of('resources/read').length, 1, 'what was listed once is no binding')
})

const opened = async (stage: Stage, who: Parameters<Stage['rpc']>[0], protocolVersion: string, at = '') =>
  (await stage.rpc(who, 'initialize', { at, params: { protocolVersion, capabilities: {} } })).json.result

await t.test(
  '2025-03-26 demands batches, which are refused: it is offered to nobody, and its clients are served',
  async (t) => {
    const stage = await mcpStage(t)
    const server = await toolServer(t, [tool('go')])
    const bot = await stage.enroll('bot', HELD)
    await stage.bind(bot, await stage.register('up', server))
    for (const [requested, offered] of [
      ['2025-11-25', '2025-11-25'],
      ['2025-06-18', '2025-06-18'],
      // The clients of it know the one before, and none sends a batch.
      ['2025-03-26', '2024-11-05'],
      ['2024-11-05', '2024-11-05'],
      ['2099-01-01', '2025-11-25'],
      ['1999-01-01', '2025-11-25'],
    ] as const) {
      for (const at of ['', '/up'])
        t.equal((await opened(stage, bot, requested, at)).protocolVersion, offered, requested)
    }
    const headers = { 'mcp-protocol-version': '2025-03-26' }
    t.ok((await stage.callTool(bot, 'up.go', {}, { headers })).json.result, 'what states it is served')
    const unknown = await stage.rpc(bot, 'ping', { headers: { 'mcp-protocol-version': '2099-01-01' } })
    t.same(unknown.json.error.data.supported, ['2026-07-28', '2025-11-25', '2025-06-18', '2024-11-05'])
    const body = JSON.stringify([{ jsonrpc: '2.0', id: 1, method: 'ping' }])
    const batch = await stage.call(bot, 'POST', '/v1/mcp', {
      body,
      headers: { 'content-type': 'application/json' },
    })
    t.match([batch.status, batch.json.error.code], [400, -32600])
  },
)

await t.test('a list that one server cannot give leaves the URIs of the others', async (t) => {
  const stage = await mcpStage(t)
  const well = await library(t, { resources: ['file:///a'] })
  const ill = await rawMcp(
    t,
    legacy({ capabilities: CAPABILITIES, act: (res, told) => sendJson(res, error(told.id, -32603, 'no')) }),
  )
  const bot = await stage.enroll('bot', HELD)
  for (const [name, server] of Object.entries({ ill, well }))
    await stage.bind(bot, await stage.register(name, server))
  await stage.rpc(bot, 'resources/list')
  t.ok((await stage.rpc(bot, 'resources/read', { params: { uri: 'file:///a' } })).json.result)
})
