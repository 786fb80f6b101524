import t from 'tap'
import { called, legacyWith, mcpStage, tool, toolServer } from '../../support/mcp/stage.ts'

await t.test(
  'docs/protocol.md#mcp-names: a name that meant one tool never comes to mean another',
  async (t) => {
    const stage = await mcpStage(t)
    const server = await toolServer(t, [tool('files'), tool('wipe')])
    const files = await stage.register('files', server)
    const bot = await stage.enroll('bot', ['mcp.tools.call'])
    await stage.bind(bot, files)
    const lists = async (...names: string[]) => {
      server.act = legacyWith(names.map((name) => tool(name)))
      await stage.refresh(files)
      return (await stage.callTool(bot, 'files')).json.error?.code ?? 'called'
    }
    t.equal(await lists('files', 'wipe'), 'called')
    t.equal(await lists('wipe'), -32004, 'the tool of that name is gone, and the only other is not meant')
    t.equal(await lists('wipe', 'more'), -32004)
    t.equal(await lists('files', 'wipe'), 'called')
    t.same(
      called(server).map(({ name }) => name),
      ['files', 'files'],
    )
  },
)

await t.test(
  'docs/protocol.md#mcp-names: a tool that appears beside the only one takes its short name away',
  async (t) => {
    const stage = await mcpStage(t)
    const server = await toolServer(t, [tool('read')])
    const files = await stage.register('files', server)
    const bot = await stage.enroll('bot', ['mcp.tools.call'])
    await stage.bind(bot, files)
    t.ok((await stage.callTool(bot, 'files')).json.result)
    for (const [names, code] of [
      [['read', 'more'], -32004],
      [['read', 'files'], -32006],
      [['more'], -32004],
    ] as const) {
      server.act = legacyWith(names.map((name) => tool(name)))
      await stage.refresh(files)
      t.equal((await stage.callTool(bot, 'files')).json.error.code, code, names.join())
    }
    t.equal(called(server).length, 1)
  },
)

await t.test('threat 5: a name is its bytes: no other spelling of it calls anything', async (t) => {
  const stage = await mcpStage(t)
  const server = await toolServer(t, [tool('read')])
  const files = await stage.register('files', server)
  const bot = await stage.enroll('bot', ['mcp.tools.call'])
  await stage.bind(bot, files)
  for (const name of [
    'files.re\u0430d',
    'files.read\u200b',
    '\ufb01les.read',
    'files\uff0eread',
    'files.READ',
    'files.read ',
    'files.read\u0301',
    '%66iles.read',
    'files.read\u0000',
  ]) {
    const header = `=?base64?${Buffer.from(name).toString('base64')}?=`
    t.equal((await stage.callTool(bot, name)).json.error?.code, -32004, JSON.stringify(name))
    const modern = await stage.callTool(bot, name, {}, { modern: true, headers: { 'mcp-name': header } })
    t.equal(modern.json.error?.code, -32004, JSON.stringify(name))
  }
  t.same(called(server), [])
})

await t.test('threat 9: tools, arguments and capabilities may be called what every object has', async (t) => {
  const stage = await mcpStage(t, { files: { '60-mcp.yaml': 'plugin: mcp\nlist: callable\n' } })
  const names = ['__proto__', 'constructor', 'toString', 'hasOwnProperty', 'valueOf']
  const properties = { constructor: { type: 'string' }, toString: { type: 'string' } }
  const inputSchema = { type: 'object', properties, required: ['constructor'], additionalProperties: false }
  const server = await toolServer(
    t,
    names.map((name) => tool(name, { inputSchema })),
  )
  const own = '{"__proto__":"s.proto","constructor":"s.ctor"}'
  const at = JSON.stringify(server.url)
  const body = `{"name":"s","endpoint_url":${at},"required_capability":"s.use","tool_capabilities":${own}}`
  const made = await stage.admin('POST', '/v1/admin/mcp-resources', body, {
    'content-type': 'application/json',
  })
  const bot = await stage.enroll('bot', ['s.use', 'mcp.tools.list'])
  await stage.bind(bot, made.json)
  t.same(await stage.listed(bot), ['s.hasOwnProperty', 's.toString', 's.valueOf'])
  const outcome = async (name: string, args: string) => {
    const params = `{"name":"s.${name}","arguments":${args}}`
    const { json } = await stage.call(bot, 'POST', '/v1/mcp', {
      headers: { 'content-type': 'application/json' },
      body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":${params}}`,
    })
    return json.error?.data?.required_capability ?? json.error?.code ?? 'called'
  }
  t.equal(await outcome('__proto__', '{"constructor":"x"}'), 's.proto')
  t.equal(await outcome('constructor', '{"constructor":"x"}'), 's.ctor')
  t.equal(await outcome('toString', '{"constructor":"x"}'), 'called')
  t.equal(await outcome('toString', '{}'), -32602, 'what every object has is not an argument')
  t.equal(await outcome('toString', '{"constructor":"x","valueOf":1}'), -32602)
  t.equal(await outcome('toString', '{"constructor":"x","__proto__":{"polluted":1}}'), -32602)
  t.equal(Object.hasOwn(Object.prototype, 'polluted'), false)
})
