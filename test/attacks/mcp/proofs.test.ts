import t from 'tap'
import { proof, proofSigner, tokenFor } from '../../support/dpop.ts'
import type { Identity, Json } from '../../support/gateway.ts'
import { legacy, rawMcp, result, sendJson } from '../../support/mcp/raw-upstream.ts'
import { called, mcpStage, type RpcOptions, type Stage, tool, toolServer } from '../../support/mcp/stage.ts'

const COPIES = 20

/** A fresh proof for a door. */
async function fresh(stage: Stage, who: Identity, at = ''): Promise<string> {
  const { headers } = await stage.call(who, 'GET', '/v1/models')
  const nonce = String(headers['dpop-nonce'])
  return proof(proofSigner(), { htm: 'POST', htu: `${stage.url}/v1/mcp${at}`, nonce })
}

await t.test(
  'D-17: of twenty identical proofs at once exactly one passes, whatever the message is',
  async (t) => {
    const stage = await mcpStage(t)
    const server = await toolServer(t, [tool('go')])
    const resource = await stage.register('go', server)
    const bot = await stage.enroll('bot', ['mcp.tools.call', 'mcp.tools.list'])
    await stage.bind(bot, resource)
    const initialize = { protocolVersion: '2025-11-25', capabilities: {} }
    const cases: readonly (readonly [method: string, options: RpcOptions])[] = [
      ['ping', {}],
      ['initialize', { params: initialize }],
      ['tools/list', {}],
      ['tools/list', { at: '/go' }],
      ['tools/call', { params: { name: 'go' } }],
      ['server/discover', { modern: true }],
      // Refused at every stage there is: a proof that was seen has been used.
      ['tools/call', { params: { name: 'none' } }],
      ['prompts/list', {}],
      ['nothing/such', {}],
      ['tools/list', { at: '/none' }],
      ['tools/list', { headers: { 'mcp-session-id': 'none' } }],
    ]
    for (const [method, { headers, ...options }] of cases) {
      const own = { ...headers, dpop: await fresh(stage, bot, options.at) }
      const answers = await Promise.all(
        Array.from({ length: COPIES }, () => stage.rpc(bot, method, { ...options, headers: own })),
      )
      const name = `${method} ${options.at ?? ''}`
      t.equal(answers.filter(({ status }) => status === 401).length, COPIES - 1, name)
      const later = await stage.rpc(bot, 'ping', { at: options.at ?? '', headers: { dpop: own.dpop } })
      t.equal(later.status, 401, `${name}: and never again, for anything`)
    }
    t.equal(called(server).length, 1)
  },
)

await t.test('D-17: one proof does not pass both stages, for the handshake and for work', async (t) => {
  const stage = await mcpStage(t)
  const server = await toolServer(t, [tool('go')])
  const resource = await stage.register('go', server)
  const bot = await stage.enroll('bot', ['mcp.tools.call'])
  await stage.bind(bot, resource)
  const { headers: opened } = await stage.rpc(bot, 'initialize', {
    params: { protocolVersion: '2025-11-25', capabilities: {} },
  })
  const session = { 'mcp-session-id': String(opened['mcp-session-id']) }
  const dpop = await fresh(stage, bot)
  const note = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } }
  const answers = await Promise.all(
    Array.from({ length: COPIES }, (_, index) => {
      const headers = { ...session, dpop }
      if (index % 3 === 0) return stage.rpc(bot, 'ping', { headers })
      if (index % 3 === 1) return stage.callTool(bot, 'go', {}, { headers })
      return stage.call(bot, 'POST', '/v1/mcp', { headers, body: note })
    }),
  )
  t.equal(answers.filter(({ status }) => status === 401).length, COPIES - 1)
  t.ok(called(server).length <= 1)
})

const ALL = ['mcp.tools.call', 'mcp.tools.list', 'mcp.prompts.get', 'mcp.resources.read', 'http.get']
const uri = 'a://b'
const argument = { name: 'a', value: '' }
const GATED: readonly (readonly [method: string, params: Json, capability: string])[] = [
  ['tools/call', { name: 's.x' }, 'mcp.tools.call'],
  ['tools/call', { name: 'http.get', arguments: { url: 1 } }, 'http.get'],
  ['tools/list', {}, 'mcp.tools.list'],
  ['prompts/list', {}, 'mcp.prompts.get'],
  ['prompts/get', { name: 's.p' }, 'mcp.prompts.get'],
  ['completion/complete', { ref: { type: 'ref/prompt', name: 's.p' }, argument }, 'mcp.prompts.get'],
  ['completion/complete', { ref: { type: 'ref/resource', uri }, argument }, 'mcp.resources.read'],
  ['resources/list', {}, 'mcp.resources.read'],
  ['resources/templates/list', {}, 'mcp.resources.read'],
  ['resources/read', { uri }, 'mcp.resources.read'],
  ['resources/subscribe', { uri }, 'mcp.resources.read'],
  ['resources/unsubscribe', { uri }, 'mcp.resources.read'],
  ['logging/setLevel', { level: 'info' }, 'mcp.tools.call'],
]

await t.test(
  'docs/protocol.md#token-endpoint: a token narrowed to one capability opens that one’s methods, and no other',
  async (t) => {
    const stage = await mcpStage(t)
    const capabilities = { tools: {}, prompts: {}, resources: {}, completions: {}, logging: {} }
    const lists = { prompts: [], resources: [], resourceTemplates: [], contents: [], messages: [] }
    const server = await rawMcp(
      t,
      legacy({
        capabilities,
        act: (res, told) => sendJson(res, result(told, { tools: [tool('x')], ...lists, content: [] })),
      }),
    )
    const resource = await stage.register('s', server, { required_capability: 'mcp.tools.call' })
    const bot = await stage.enroll('bot', ALL)
    await stage.bind(bot, resource)
    for (const scope of ALL) {
      const token = (await tokenFor(stage, bot, null, { scope })).json.access_token
      const headers = { authorization: `Bearer ${token}` }
      for (const [method, params, capability] of GATED) {
        const { json } = await stage.rpc(bot, method, { params, headers })
        const refused = json.error?.code === -32005
        t.equal(refused, capability !== scope, `${scope}: ${method} ${JSON.stringify(params)}`)
      }
    }
    const { access_token: narrow } = (await tokenFor(stage, bot, null, { scope: 'mcp.tools.list' })).json
    t.same(await stage.listed(bot, { headers: { authorization: `Bearer ${narrow}` } }), ['s.x'])
  },
)
