import type { ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import { MODERN_VERSION } from '../../../proxy/mcp/protocol/versions.ts'
import type { Json } from '../../support/gateway.ts'
import { openStream } from '../../support/mcp/open-stream.ts'
import {
  type Act,
  error,
  legacy,
  rawMcp,
  result,
  sendJson,
  sse,
  type Told,
} from '../../support/mcp/raw-upstream.ts'
import { fastMcpRead, foldingCall, foldingRead } from '../../support/mcp/second-readers.ts'
import { mcpStage, request, tool } from '../../support/mcp/stage.ts'

// Each name is one of MCP's to some reader.
const CASES = ['Name', 'NAME', 'NaMe']
const ARGUMENTS = ['Arguments', 'argument\u017f', 'ARGUMENT\u017f']

const stage = await mcpStage(t)
const path = { type: 'string' }
const TOOLS = [
  tool('read_file'),
  tool('delete_file'),
  tool('typed', {
    inputSchema: {
      type: 'object',
      properties: {
        path,
        token: { type: 'string' },
        options: { $ref: '#/$defs/options' },
        list: { type: 'array', items: { anyOf: [{}, { $ref: '#/$defs/options' }] } },
        map: { type: 'object', additionalProperties: { $ref: '#/$defs/options' } },
        free: { type: 'object' },
        owner: { anyOf: [{ type: 'string' }, { type: 'null' }] },
        paths: { anyOf: [{ type: 'string' }, { type: 'array', items: path }] },
      },
      $defs: {
        options: { type: 'object', properties: { mode: { type: 'string' } }, additionalProperties: true },
      },
      allOf: [{ if: { not: { required: ['kind'] } }, else: { properties: { target: path } } }],
    },
  }),
]
const DOUBTFUL = { owner: ['null'], paths: ['array'] }
const CAPABILITIES = { tools: {}, prompts: {}, resources: {}, completions: {}, logging: {} }
const LISTS = { prompts: [], resources: [], resourceTemplates: [], contents: [], messages: [] }
const answers: Act = (res, told) =>
  sendJson(res, result(told, { tools: TOOLS, ...LISTS, content: [], completion: { values: [] } }))

/** A server of both eras at once. */
const both: Act = (res, told) => {
  if (told.rpc !== 'server/discover') return legacy({ capabilities: CAPABILITIES, act: answers })(res, told)
  const found = { resultType: 'complete', supportedVersions: [MODERN_VERSION], capabilities: CAPABILITIES }
  sendJson(res, result(told, found))
}
const old = await rawMcp(t, legacy({ capabilities: CAPABILITIES, act: answers }))
const young = await rawMcp(t, both)
const resources = [await stage.register('files', old), await stage.register('modern', young)]
const bot = await stage.enroll('bot', ['mcp.tools.call', 'mcp.prompts.get', 'mcp.resources.read'])
for (const resource of resources) await stage.bind(bot, resource)

const HEADERS = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' }
const send = async (body: string, at = '/files', headers: Record<string, string> = {}): Promise<Json> =>
  (await stage.call(bot, 'POST', `/v1/mcp${at}`, { headers: { ...HEADERS, ...headers }, body })).json
const asked = (method: string, params: string, at = '/files'): Promise<Json> =>
  send(`{"jsonrpc":"2.0","id":1,"method":"${method}","params":${params}}`, at)
const sent = (): readonly Told[] => [...old.told, ...young.told].filter(({ rpc }) => rpc.includes('/'))

/** Sends what must reach no server, and says by which code it was refused. */
async function refusal(t: Test, say: () => Promise<Json>): Promise<unknown> {
  const before = sent().length
  const { error: refused } = await say()
  t.equal(sent().length, before, 'nothing reached a server')
  return refused?.code
}

await t.test('H1: a name that some reader takes for one of the call runs no other tool', async (t) => {
  for (const name of CASES) {
    for (const params of [
      `{"name":"read_file","${name}":"delete_file","arguments":{}}`,
      `{"${name}":"delete_file","name":"read_file"}`,
      `{"${name}":"delete_file"}`,
    ]) {
      t.equal(await refusal(t, () => asked('tools/call', params)), -32602, params)
    }
  }
  for (const name of ARGUMENTS) {
    for (const params of [
      `{"name":"read_file","arguments":{"path":"/ok"},"${name}":{"path":"/etc/shadow"}}`,
      `{"name":"read_file","${name}":{"path":"/etc/shadow"}}`,
    ]) {
      t.equal(await refusal(t, () => asked('tools/call', params)), -32602, params)
    }
  }
  for (const [name, value] of [
    ['Params', '{"name":"delete_file"}'],
    ['param\u017f', '{"name":"delete_file"}'],
    ['Method', '"tools/list"'],
    ['ID', '7'],
    ['JsonRPC', '"1.0"'],
    ['Re\u017fult', '{}'],
  ] as const) {
    const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file"},"${name}":${value}}`
    t.equal(await refusal(t, () => send(body)), -32602, name)
  }
  for (const twice of [
    '{"name":"read_file","name":"delete_file"}',
    '{"name":"read_file","n\\u0061me":"delete_file"}',
    '{"name":"read_file","name\\u0000":"delete_file"}',
  ]) {
    t.equal(await refusal(t, () => asked('tools/call', twice)), -32700, twice)
  }
  const honest = await asked('tools/call', '{"name":"read_file","arguments":{"path":"/ok","Other":1}}')
  t.ok(honest.result, 'an honest call beside them is served')
})

await t.test(
  'H1: what no reader mistakes, and no method has, is left out of what goes to a server',
  async (t) => {
    const long = 'x'.repeat(100_000)
    for (const args of ['{"path":"/ok"}', `{"path":"/ok","text":"${long}"}`]) {
      const params = `{"x-vendor":{"a":1.50},"name":"read_file","__proto__":{"name":"delete_file"},"arguments":${args},"tool":"delete_file"}`
      t.ok((await asked('tools/call', params)).result)
      const last = old.of('tools/call').at(-1)
      t.same(last?.message.params, { name: 'read_file', arguments: JSON.parse(args) })
      t.notMatch(last?.body.toString(), /vendor|proto|delete_file|1\.50/)
    }
    for (const params of [
      '{"uri":"a://b","name":"p","range":[1],"u_ri":"file:///etc/shadow"}',
      `{"uri":"a://b","name":"p","range":"${long}"}`,
    ]) {
      t.ok((await asked('resources/read', params)).result)
      t.same(old.of('resources/read').at(-1)?.message.params, { uri: 'a://b' })
    }
    const complete = `{"ref":{"type":"ref/prompt","name":"p","title":"P","icons":[],"uri":"a://b"},"argument":{"name":"a","value":"","x":1},"context":{"arguments":{"b":"c"},"x":1}}`
    t.ok((await asked('completion/complete', complete)).result)
    t.same(old.of('completion/complete').at(-1)?.message.params, {
      ref: { type: 'ref/prompt', name: 'p', title: 'P', uri: 'a://b' },
      argument: { name: 'a', value: '' },
      context: { arguments: { b: 'c' } },
    })
    const member = { ref: { type: 'ref/prompt', name: 'p', x: long }, argument: { name: 'a', value: '' } }
    t.equal(
      await refusal(t, () => asked('completion/complete', JSON.stringify(member))),
      -32602,
      'a long one',
    )
  },
)

await t.test('H1: no method passes a member that some reader takes for one of its own', async (t) => {
  const argument = '"argument":{"name":"a","value":""}'
  for (const [method, params] of [
    ['prompts/get', '{"name":"p","Name":"q"}'],
    ['prompts/get', '{"name":"p","arguments":{"a":"1","A":"2"}}'],
    ['resources/read', '{"uri":"a://b","Uri":"file:///etc/shadow"}'],
    ['resources/subscribe', '{"uri":"a://b","URI":"a://c"}'],
    ['resources/unsubscribe', '{"uri":"a://b","URI":"a://c"}'],
    ['logging/setLevel', '{"level":"error","Level":"debug"}'],
    ['completion/complete', `{"ref":{"type":"ref/prompt","name":"p","Name":"q"},${argument}}`],
    [
      'completion/complete',
      `{"ref":{"type":"ref/prompt","name":"p","Type":"ref/resource","Uri":"a://b"},${argument}}`,
    ],
    ['completion/complete', `{"ref":{"type":"ref/prompt","name":"p","name\\u0000":"q"},${argument}}`],
    [
      'completion/complete',
      `{"ref":{"type":"ref/prompt","name":"p"},"Ref":{"type":"ref/prompt","name":"q"},${argument}}`,
    ],
    [
      'completion/complete',
      '{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"","Value":"b"}}',
    ],
    [
      'completion/complete',
      `{"ref":{"type":"ref/prompt","name":"p"},${argument},"context":{"arguments":{"a":"1","A":"2"}}}`,
    ],
    ['prompts/list', '{"Cursor":"c"}'],
    ['tools/call', '{"name":"read_file","_Meta":{"progressToken":1}}'],
    ['tools/call', '{"name":"read_file","Ta\u017f\u212a":{"ttl":1}}'],
    ['tools/call', '{"name":"read_file","task":{"ttl":1,"TTL":2}}'],
    ['tools/call', '{"name":"read_file","task":{"PollInterval":2}}'],
    ['tools/call', '{"name":"read_file","RequestState":"s"}'],
    ['tools/call', '{"name":"read_file","_meta":{"progressToken":1,"ProgressToken":2}}'],
    ['tools/call', '{"name":"read_file","_meta":{"IO.modelcontextprotocol/protocolVersion":"2026-07-28"}}'],
    [
      'tools/call',
      '{"name":"read_file","_meta":{"io.modelcontextprotocol/ProtocolVer\u017fion":"2026-07-28"}}',
    ],
    ['tools/call', '{"name":"read_file","inputResponses":{"a":{"action":"decline","Action":"accept"}}}'],
    [
      'tools/call',
      '{"name":"read_file","inputResponses":{"a":{"action":"decline"},"A":{"action":"accept"}}}',
    ],
    ['initialize', '{"protocolVersion":"2025-11-25","capabilities":{},"Capabilities":{"roots":{}}}'],
    ['initialize', '{"protocolVersion":"2025-11-25","capabilities":{"Root\u017f":{}}}'],
  ] as const) {
    t.equal(await refusal(t, () => asked(method, params)), -32602, params)
  }
  const many = Object.fromEntries(Array.from({ length: 3_000 }, (_, i) => [`x${i}`, i]))
  for (const params of [many, { name: 'read_file', ...many }, { name: 'read_file', _meta: many }])
    t.equal(await refusal(t, () => asked('tools/call', JSON.stringify(params))), -32602, 'too many names')
})

await t.test(
  'H1: an argument that folds onto a property of an open schema is none, however deep',
  async (t) => {
    for (const args of [
      { path: '/ok', Path: '/etc/shadow' },
      { Path: '/etc/shadow' },
      { pa_th: '/etc/shadow' },
      { 'path\0': '/etc/shadow' },
      { to\u212aen: 'x' },
      { options: { Mode: 'w' } },
      { options: { mode: 'r', MODE: 'w' } },
      { list: [{ mode: 'r' }, { Mode: 'w' }] },
      { map: { any: { Mode: 'w' } } },
      { Target: '/etc/shadow' },
      { KIND: 'x' },
      { other: 1, Other: 2 },
    ]) {
      const params = JSON.stringify({ name: 'typed', arguments: args })
      t.equal(await refusal(t, () => asked('tools/call', params)), -32602, params)
      const long = JSON.stringify({ name: 'typed', arguments: { ...args, text: 'x'.repeat(100_000) } })
      const code = await refusal(t, () => asked('tools/call', long))
      t.ok(code === -32602 || code === -32700, `${params}, in a long message`)
    }
    const honest = {
      path: '/ok',
      more: 1,
      free: { Path: 1, path: 2, Mode: 3 },
      map: { a: { mode: 'r' }, A: { mode: 'w' } },
      options: { mode: 'r', extra: { Mode: 1 } },
      kind: 'x',
      target: '/t',
    }
    t.ok((await asked('tools/call', JSON.stringify({ name: 'typed', arguments: honest }))).result)
    t.same(old.of('tools/call').at(-1)?.message.params, { name: 'typed', arguments: honest })
  },
)

await t.test('H1c: a URI that is not in its normal form names no resource', async (t) => {
  const argument = { name: 'a', value: '' }
  const methods = (uri: string): readonly (readonly [string, Json])[] => [
    ['resources/read', { uri }],
    ['resources/subscribe', { uri }],
    ['resources/unsubscribe', { uri }],
    ['completion/complete', { ref: { type: 'ref/resource', uri }, argument }],
  ]
  for (const uri of [
    'FILE:///etc/shadow',
    'file:///data/%2e%2e/etc/shadow',
    'file:///data/..%2fetc/shadow',
  ]) {
    for (const [method, params] of methods(uri))
      t.equal(await refusal(t, () => asked(method, JSON.stringify(params))), -32602, `${method} ${uri}`)
  }
  for (const [method, params] of methods('file:///data/a.txt'))
    t.ok((await asked(method, JSON.stringify(params))).result, method)
  const template = { ref: { type: 'ref/resource', uri: 'file:///{path}{?q*}' }, argument }
  t.ok((await asked('completion/complete', JSON.stringify(template))).result, 'a template is completed')
})

await t.test(
  'H1d: text that a server may read as JSON that its schema takes, too, is no argument',
  async (t) => {
    for (const args of [
      { owner: 'null' },
      { owner: ' null\n' },
      { paths: '["/etc/shadow"]' },
      { paths: ' [NaN, "/etc/shadow"] ' },
    ]) {
      const { error: refused } = await asked('tools/call', JSON.stringify({ name: 'typed', arguments: args }))
      t.match(refused, {
        code: -32602,
        message: /^arguments: (owner|paths) is text that some servers read as JSON/,
      })
    }
    for (const args of [
      { owner: 'nobody' },
      { owner: '["a"]' },
      { owner: null },
      { paths: '[draft] a [b]' },
      { paths: ['/ok'] },
      { path: 'null' },
      { token: '{"a":1}' },
    ]) {
      t.ok((await asked('tools/call', JSON.stringify({ name: 'typed', arguments: args }))).result)
      const { arguments: ran }: Json = old.of('tools/call').at(-1)?.message.params ?? {}
      t.same(fastMcpRead(ran, DOUBTFUL), args, 'a reader of JSON in text runs what was judged')
    }
  },
)

await t.test('H1: of two eras each server gets what its own has', async (t) => {
  const modern = (params: Json) => {
    const { headers, body } = request('tools/call', { modern: true, params })
    return stage.call(bot, 'POST', '/v1/mcp/modern', { headers, body })
  }
  const inputResponses = { sure: { action: 'accept', content: { Action: 1, action: 2 }, vendor: 1 } }
  t.ok((await modern({ name: 'read_file', inputResponses })).json.result)
  t.match(young.of('tools/call').at(-1)?.message.params, { name: 'read_file', inputResponses })
  t.ok((await asked('tools/call', JSON.stringify({ name: 'read_file', inputResponses }))).result)
  t.same(old.of('tools/call').at(-1)?.message.params, { name: 'read_file' }, 'an older one has no rounds')
  const { json } = await modern({ name: 'read_file', requestState: null, RequestState: 's' })
  t.equal(json.error.code, -32602)
  // As the SDK of TypeScript sends it.
  const task = { ttl: 1, pollInterval: 2 }
  for (const args of [{}, { text: 'x'.repeat(100_000) }]) {
    t.ok((await asked('tools/call', JSON.stringify({ name: 'read_file', arguments: args, task }))).result)
    const { params } = old.of('tools/call').at(-1)?.message ?? {}
    t.same(params, { name: 'read_file', arguments: args }, 'no task can be asked for, so none is begun')
  }
})

await t.test('H1: a folding client reads of a server what was read here', async (t) => {
  const read: Json[] = []
  const reads = (message: Json): void => {
    read.push(foldingRead(message, ['jsonrpc', 'id', 'method', 'params', 'result', 'error']))
  }
  const calling = (act: Act): void => {
    const other = (res: ServerResponse, told: Told) =>
      told.rpc === 'tools/call' ? act(res, told) : answers(res, told)
    old.act = legacy({ capabilities: CAPABILITIES, act: other })
  }
  /** The response of a server's stream; what comes before it is read. */
  const streamed = async (act: Act): Promise<Json> => {
    calling(act)
    const stream = await openStream(stage, bot, 'tools/call', {
      at: '/files',
      params: { name: 'read_file' },
    })
    for (;;) {
      const next = await stream.next()
      reads(next)
      if (next.id === undefined) continue
      stream.hangUp()
      return next
    }
  }
  const answered = (act: Act): Promise<Json> => {
    calling(act)
    return asked('tools/call', '{"name":"read_file"}')
  }
  const pieces =
    (...messages: readonly Json[]): Act =>
    (res, told) => {
      const event = sse(res)
      for (const message of messages)
        event({ jsonrpc: '2.0', ...message, ...(message.id === 'own' && { id: told.id }) })
      res.end()
    }
  const done = { id: 'own', result: { content: [] } }
  for (const alike of [
    { method: 'notifications/message', params: {}, Method: 'notifications/tools/list_changed' },
    { method: 'notifications/message', params: {}, Id: 'q-1', Re\u017fult: { content: [] } },
    { method: 'notifications/message', params: {}, PARAMS: {} },
  ]) {
    const last = await streamed(pieces(alike, done))
    t.same(last.result, done.result, `passed over: ${JSON.stringify(alike)}`)
  }
  t.ok(
    read.every(({ method }) => method === undefined),
    'no such message passed',
  )
  const noted = { method: 'notifications/message', params: { level: 'info', data: 1 }, vendor: 'x' }
  t.ok((await streamed(pieces(noted, done))).result)
  t.same(read.at(-2), { jsonrpc: '2.0', method: 'notifications/message', params: noted.params })
  for (const own of [
    { content: [], IsError: true },
    { content: [], Content: [] },
    { content: [], '\u017ftructuredContent': {} },
    { content: [], '_meta\0': {} },
  ]) {
    t.equal(
      (await answered((res, told) => sendJson(res, result(told, own)))).error?.code,
      -32003,
      JSON.stringify(own),
    )
  }
  const coded = { ...error(0, 1, 'm'), error: { code: 1, Code: -32005, message: 'm' } }
  t.equal((await answered((res, told) => sendJson(res, { ...coded, id: told.id }))).error?.code, -32003)
  t.ok(
    (await answered((res, told) => sendJson(res, result(told, { content: [], vendor: 1 })))).result?.vendor,
  )
  old.act = legacy({ capabilities: CAPABILITIES, act: answers })
})

await t.test('H1: whatever reached a server, a folding reader runs what the row names', async (t) => {
  const calls = sent().filter(({ rpc }) => rpc === 'tools/call')
  t.ok(calls.length > 5)
  for (const { message } of calls) {
    const { name, arguments: args } = message.params as Json
    t.same(foldingCall(message), { name, arguments: args })
  }
  const rows = await stage.rows({ action: 'mcp_tools_call', status: 'allowed', limit: 100 })
  const ran = calls.map(({ message }) => String(foldingCall(message).name))
  t.same(new Set(rows.map(({ tool: named }) => named?.replace(/^\w+\./, ''))), new Set(ran))
})
