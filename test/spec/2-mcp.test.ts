import t from 'tap'
import { called, filesStage, mcpStage, tool, toolServer } from '../support/mcp/stage.ts'

await t.test('§2.3 mcp.tools.list gates tools/list and nothing else', async (t) => {
  const stage = await mcpStage(t)
  const server = await toolServer(t, [tool('read'), tool('write')])
  const files = await stage.register('files', server, { required_capability: 'files.use' })
  const bot = await stage.enroll('bot', ['files.use'])
  await stage.bind(bot, files)

  const denied = await stage.rpc(bot, 'tools/list')
  t.equal(denied.status, 200)
  t.match(denied.json, {
    jsonrpc: '2.0',
    id: 1,
    error: {
      code: -32005,
      message: 'capability_missing: mcp.tools.list',
      data: { required_capability: 'mcp.tools.list' },
    },
  })
  const answer = await stage.callTool(bot, 'files.read', { path: 'a' })
  t.match(JSON.parse(answer.json.result.content[0].text), { name: 'read', arguments: { path: 'a' } })

  await stage.grant(bot, ['files.use', 'mcp.tools.list'])
  t.same(await stage.listed(bot), ['files.read', 'files.write'])
})

await t.test(
  '§2.3 a tool demands the binding and its own required_capability; mcp.tools.call is informational',
  async (t) => {
    const { stage, server, files, bot } = await filesStage(t, ['mcp.tools.call', 'mcp.tools.list'])
    const code = async (name: string): Promise<number> => (await stage.callTool(bot, name)).json.error?.code

    t.equal(await code('files.nothing'), -32004, 'what does not exist is not asked for')
    t.equal(await code('nothing.read'), -32004)
    t.equal(await code('files.read'), -32000, 'no binding')
    t.same(await stage.listed(bot), [])
    await stage.bind(bot, files)
    const missing = await stage.callTool(bot, 'files.read')
    t.match(missing.json.error, { code: -32005, message: 'capability_missing: files.use' })
    t.equal(missing.json.error.data.required_capability, 'files.use')
    t.same(await stage.listed(bot), ['files.read', 'files.write'], 'what is bound is listed')

    await stage.grant(bot, ['files.use', 'mcp.tools.list'])
    t.equal(await code('files.read'), undefined, 'without mcp.tools.call')
    t.match((await stage.callTool(bot, 'files.write')).json.error, {
      message: 'capability_missing: files.write',
    })
    await stage.grant(bot, ['files.write', 'mcp.tools.list'])
    t.equal(await code('files.write'), undefined)
    t.equal(await code('files.read'), -32005, 'the capability of one tool is not that of its resource')
    t.same(
      called(server).map(({ name }) => name),
      ['read', 'write'],
      'nothing that was refused went upstream',
    )
  },
)

await t.test(
  '§1 an empty set is denied everywhere, also for a resource that names no capability',
  async (t) => {
    const stage = await mcpStage(t)
    const server = await toolServer(t, [tool('only')])
    const plain = await stage.register('plain', server)
    t.equal(plain.required_capability, null)
    const bot = await stage.enroll('bot', [])
    await stage.bind(bot, plain)
    const before = server.told.length
    for (const [method, params] of [
      ['tools/list', {}],
      ['tools/call', { name: 'plain.only' }],
      ['tools/call', { name: 'plain' }],
      ['tools/call', { name: 'http.get', arguments: { url: 'https://example.com/' } }],
      ['prompts/list', {}],
      ['prompts/get', { name: 'plain.p' }],
      ['resources/list', {}],
      ['resources/templates/list', {}],
      ['resources/read', { uri: 'file:///x' }],
      [
        'completion/complete',
        { ref: { type: 'ref/prompt', name: 'plain.p' }, argument: { name: 'a', value: '' } },
      ],
    ] as const) {
      for (const modern of [false, true]) {
        const { status, json } = await stage.rpc(bot, method, { params, modern })
        t.equal(status, 200, method)
        t.equal(json.error?.code, -32005, `${method} ${JSON.stringify(params)}`)
      }
    }
    t.equal(server.told.length, before, 'no request went upstream')
    const { error } = (await stage.callTool(bot, 'plain.only')).json
    t.match(error, { message: 'capability_missing: mcp.tools.call' })
    await stage.grant(bot, ['x.y'])
    t.ok((await stage.callTool(bot, 'plain')).json.result, 'callable by the resource, which has one tool')
  },
)

await t.test(
  '§2.3 a resource without required_capability demands its binding and nothing else',
  async (t) => {
    const stage = await mcpStage(t)
    const server = await toolServer(t, [tool('read'), tool('write')])
    const files = await stage.register('files', server, { tool_capabilities: { write: 'files.write' } })
    const bot = await stage.enroll('bot', ['llm.chat'])
    const code = async (name: string): Promise<number> => (await stage.callTool(bot, name)).json.error?.code
    t.equal(await code('files.read'), -32000)
    await stage.bind(bot, files)
    t.equal(await code('files.read'), undefined)
    t.equal(await code('files.write'), -32005, 'a tool of it may demand its own')
    const path = `/v1/admin/mcp-resources/${files.resource_id}`
    await stage.admin('PATCH', path, { required_capability: 'files.use' })
    t.equal(await code('files.read'), -32005)
    t.equal((await stage.admin('PATCH', path, { required_capability: null })).json.required_capability, null)
    t.equal(await code('files.read'), undefined)
  },
)

await t.test('§2.3 v0.7: with enforce_tools_call every call demands mcp.tools.call too', async (t) => {
  const files = { '60-mcp.yaml': 'plugin: mcp\nenforce_tools_call: true\n' }
  const stage = await mcpStage(t, { files })
  const server = await toolServer(t, [tool('read')])
  const resource = await stage.register('files', server, { required_capability: 'files.use' })
  const bot = await stage.enroll('bot', ['files.use', 'mcp.tools.list'])
  await stage.bind(bot, resource)
  t.match((await stage.callTool(bot, 'files.read')).json.error, {
    code: -32005,
    message: 'capability_missing: mcp.tools.call',
  })
  await stage.grant(bot, ['files.use', 'mcp.tools.list', 'mcp.tools.call'])
  t.ok((await stage.callTool(bot, 'files.read')).json.result)
  t.same(await stage.listed(bot), ['files.read'])
})

await t.test(
  '§2.3 tools/list shows the tools that are bound; with list: callable those whose capability is not held are hidden',
  async (t) => {
    const shown = async (list: string, held: readonly string[]) => {
      const stage = await mcpStage(t, { files: { '60-mcp.yaml': `plugin: mcp\n${list}\n` } })
      const server = await toolServer(t, [tool('read'), tool('write')])
      const own = { write: 'files.write' }
      const files = await stage.register('files', server, {
        required_capability: 'files.use',
        tool_capabilities: own,
      })
      const plain = await stage.register('plain', await toolServer(t, [tool('only')]))
      const off = await stage.register('off', await toolServer(t, [tool('x')]), { enabled: false })
      await stage.register('elsewhere', await toolServer(t, [tool('y')]))
      const bot = await stage.enroll('bot', held)
      for (const resource of [files, plain, off]) await stage.bind(bot, resource)
      return [await stage.listed(bot), await stage.listed(bot, { at: '/files' })]
    }
    const bound = [
      ['files.read', 'files.write', 'plain.only'],
      ['read', 'write'],
    ]
    t.same(await shown('', ['mcp.tools.list']), bound)
    t.same(await shown('list: bound\nenforce_tools_call: true', ['mcp.tools.list']), bound)
    const callable = [['files.write', 'plain.only'], ['write']]
    t.same(await shown('list: callable', ['mcp.tools.list', 'files.write']), callable)
    const enforced = 'list: callable\nenforce_tools_call: true'
    t.same(await shown(enforced, ['mcp.tools.list', 'files.write', 'http.get']), [[], []])
    t.same(await shown(enforced, ['mcp.tools.list', 'files.write', 'mcp.tools.call']), callable)
  },
)

await t.test('§2.3 http.get is a built-in tool behind its own capability', async (t) => {
  const stage = await mcpStage(t)
  const bot = await stage.enroll('bot', ['mcp.tools.list'])
  t.same(await stage.listed(bot), [])
  t.match((await stage.callTool(bot, 'http.get', { url: 'https://example.com/' })).json.error, {
    code: -32005,
    data: { required_capability: 'http.get' },
  })
  await stage.grant(bot, ['mcp.tools.list', 'http.get'])
  t.same(await stage.listed(bot), ['http.get'])
  const { json } = await stage.callTool(bot, 'http.get', { url: stage.upstream.url })
  t.equal(json.result.isError, true, 'it reaches no private address, whatever MCP servers may')
  t.equal(stage.upstream.seen.length, 0)
  t.equal((await stage.callTool(bot, 'http.get', { url: 1 })).json.error.code, -32602)
})

await t.test(
  '§6 every MCP decision is a row with action, tool and result, and each allowed one has an outcome',
  async (t) => {
    const stage = await mcpStage(t)
    const server = await toolServer(t, [tool('read')])
    const files = await stage.register('files', server, { required_capability: 'files.use' })
    const bot = await stage.enroll('bot', ['files.use'])
    await stage.bind(bot, files)
    await stage.rpc(bot, 'tools/list')
    const answer = await stage.callTool(bot, 'files.read', { secret: 'canary-in-arguments' })
    await stage.callTool(bot, 'files.gone')
    t.match(answer.headers['audit-receipt'], /^stream=\w+, seq=\d+, hash=[0-9a-f]{64}, salt=[0-9a-f]{32}$/)
    await stage.close()
    const rows = (await stage.rows()).filter(({ action }) => action.startsWith('mcp_t'))
    t.match(
      rows.map(({ action, status, tool: name }) => [action, status, name]),
      [
        ['mcp_tools_list', 'denied', null],
        ['mcp_tools_call', 'allowed', 'files.read'],
        ['mcp_tools_call', 'success', 'files.read'],
        ['mcp_tools_call', 'denied', 'files.gone'],
      ],
    )
    const [list, decision, outcome] = rows
    t.match(list?.detail, { reason: 'capability_missing', required_capability: 'mcp.tools.list' })
    t.match(decision?.detail, { resource: 'files', arguments_sha256: /^[0-9a-f]{64}$/, arguments_bytes: 32 })
    t.match(outcome?.detail, { isError: false, result_sha256: /^[0-9a-f]{64}$/, upstream_era: 'legacy' })
    t.equal(decision?.request_id, outcome?.request_id)
    t.notMatch(JSON.stringify(rows), /canary-in-arguments/)
  },
)

await t.test(
  'docs/protocol.md#mcp: GET is 405, and so is DELETE without a session to end; notifications are 202',
  async (t) => {
    const stage = await mcpStage(t)
    const bot = await stage.enroll('bot', [])
    for (const path of ['/v1/mcp', '/v1/mcp/x', '/v1/x/mcp']) {
      for (const [method, headers] of [
        ['GET', {}],
        ['DELETE', {}],
        ['DELETE', { 'mcp-protocol-version': '2026-07-28', 'mcp-session-id': 'x' }],
      ] as const) {
        const answer = await stage.call(bot, method, path, { headers })
        t.equal(answer.status, 405, `${method} ${path}`)
        t.match(answer.headers.allow, /POST/)
      }
    }
    const told = { jsonrpc: '2.0', method: 'notifications/initialized' }
    const answer = await stage.call(bot, 'POST', '/v1/mcp', { body: told })
    t.match([answer.status, answer.text], [202, ''])
  },
)

await t.test('/v1/{resource}/mcp is another name of /v1/mcp/{resource}, and of no other route', async (t) => {
  const { stage, files, bot, server } = await filesStage(t, ['mcp.tools.list', 'files.use'])
  const models = await stage.register('models', server, { required_capability: 'files.use' })
  const call = (path: string, method: string, params = {}, headers = {}) =>
    stage.call(bot, 'POST', path, { headers, body: { jsonrpc: '2.0', id: 1, method, params } })
  const read = { name: 'read', arguments: {} }
  for (const path of ['/v1/files/mcp', '/v1/none/mcp', '/v1/models/mcp'])
    t.match((await call(path, 'tools/call', read)).json.error, { code: -32000 }, `${path}: not bound`)
  await stage.bind(bot, files)
  await stage.bind(bot, models)
  for (const path of ['/v1/files/mcp', '/v1/mcp/files', '/v1/models/mcp', '/v1/f%69les/mcp'])
    t.match((await call(path, 'tools/call', read)).json.result, { content: [{ type: 'text' }] }, path)
  const denied = await call('/v1/files/mcp', 'tools/call', { name: 'write', arguments: {} })
  t.match(denied.json.error, { code: -32005, data: { required_capability: 'files.write' } })

  const hello = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'c', version: '1' } }
  const { headers } = await call('/v1/files/mcp', 'initialize', hello)
  const session = { 'mcp-session-id': String(headers['mcp-session-id']) }
  for (const path of ['/v1/mcp/files', '/v1/files/mcp'])
    t.equal((await call(path, 'tools/call', read, session)).status, 200, 'one session')
  t.equal((await call('/v1/mcp', 'tools/list', {}, session)).status, 404, 'of this door alone')
  t.equal((await stage.call(bot, 'DELETE', '/v1/files/mcp', { headers: session })).status, 204)

  t.match((await stage.call(bot, 'GET', '/v1/models/mcp')).json, { reason: 'model_not_found' })
  t.match((await call('/v1/v1/mcp', 'tools/list')).json, { reason: 'base_url_wrong' })
  t.match((await stage.call(null, 'POST', '/v1/files/mcp', { body: {} })).status, 401)
})

await t.test('a page of another origin reaches nothing, by whatever method', async (t) => {
  const stage = await mcpStage(t)
  const bot = await stage.enroll('bot', ['mcp.tools.list'])
  const body = { jsonrpc: '2.0', id: 1, method: 'tools/list' }
  for (const origin of ['https://evil.example', 'null', 'http://localhost', `${stage.url}.evil.example`]) {
    for (const method of ['POST', 'DELETE']) {
      const sent = method === 'POST' ? { body } : {}
      const answer = await stage.call(bot, method, '/v1/mcp', { ...sent, headers: { origin } })
      t.match([answer.status, answer.json.reason], [403, 'origin_not_allowed'], `${method} ${origin}`)
    }
  }
  t.equal((await stage.call(bot, 'POST', '/v1/mcp', { body, headers: { origin: stage.url } })).status, 200)
})

await t.test('docs/protocol.md#retry-advice: a refusal that a retry cannot cure says so', async (t) => {
  const stage = await mcpStage(t)
  const bot = await stage.enroll('bot', [])
  for (const options of [{ id: 'x'.repeat(300) }, {}]) {
    const refused = await stage.rpc(bot, 'tools/list', options)
    t.ok(refused.json.error)
    t.equal(refused.headers['x-should-retry'], 'false')
  }
})

await t.test(
  'docs/protocol.md#mcp: JSON-RPC errors are HTTP 200 for an older client, except where the body is no JSON or no object',
  async (t) => {
    const stage = await mcpStage(t)
    const bot = await stage.enroll('bot', [])
    const send = async (body: string, headers: Record<string, string> = {}) => {
      const json = { 'content-type': 'application/json', ...headers }
      const answer = await stage.call(bot, 'POST', '/v1/mcp', { body, headers: json })
      return [answer.status, answer.json.error.code, answer.json.id]
    }
    const modern = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'x' }
    const meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientCapabilities': {},
    }
    t.same(await send('{'), [400, -32700, null])
    t.same(await send('[]'), [400, -32600, null])
    t.same(await send('{"id":7,"method":"ping"}'), [200, -32600, 7])
    t.same(await send('{"jsonrpc":"2.0","id":7,"method":"x"}'), [200, -32601, 7])
    t.same(await send('{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}'), [200, -32602, 7])
    const request = JSON.stringify({ jsonrpc: '2.0', id: 7, method: 'x', params: { _meta: meta } })
    t.same(await send(request, modern), [404, -32601, 7])
    t.same(await send(request, { ...modern, 'mcp-method': 'y' }), [400, -32020, 7])
    t.same(await send(request, { ...modern, 'mcp-protocol-version': '2025-11-25' }), [400, -32020, 7])
    t.same(await send('{"id":7,"method":"ping"}', modern), [400, -32600, 7])
  },
)
