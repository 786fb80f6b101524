import t from 'tap'
import { MODERN_VERSION } from '../../../proxy/mcp/protocol/versions.ts'
import { type Act, error, legacy, rawMcp, result, sendJson, sse } from '../../support/mcp/raw-upstream.ts'
import { mcpStage, tool } from '../../support/mcp/stage.ts'

const CANARY = 'canary-secret-0123456789'
const SEEN = new RegExp(CANARY)

/** Ways to say the secret that one was approached with. */
const ECHOES: Readonly<Record<string, Act>> = {
  'an error': (res, told) => sendJson(res, error(told.id, -32602, CANARY)),
  'an error of ours': (res, told) => sendJson(res, error(told.id, -32000, CANARY)),
  'an unknown session': (res) => sendJson(res, error(null, -32000, `session ${CANARY}`), 400),
  'a refusal': (res) => sendJson(res, { error: CANARY }, 401),
  'a page': (res) => sendJson(res, CANARY, 500),
  'a redirect': (res) => void res.writeHead(302, { location: `https://x/${CANARY}` }).end(),
  'a type': (res) => void res.writeHead(200, { 'content-type': CANARY }).end('x'),
  'no HTTP': (res) => void res.socket?.end(`HTTP/1.1 200 ${CANARY}\r\nX: \0${CANARY}\r\n\r\n`),
  'half a message': (res, told) => sendJson(res, `{"jsonrpc":"2.0","id":${String(told.id)},"a":"${CANARY}`),
  'another id': (res) => sendJson(res, { jsonrpc: '2.0', id: CANARY, result: {} }),
  'a result': (res, told) => sendJson(res, result(told, { prompts: [{ name: CANARY }], content: [CANARY] })),
  'a session id': (res, told) => {
    res.setHeader('mcp-session-id', CANARY)
    sendJson(res, result(told, { prompts: [], content: [] }))
  },
  'a notification': (res, told) => {
    const send = sse(res)
    send({ jsonrpc: '2.0', method: 'notifications/message', params: { data: CANARY } })
    send(result(told, {}))
    res.end()
  },
}

/** What the inside looks like, to whoever should not see it. */
const INTERNALS = /127\.0\.0\.1|ECONN|UND_ERR|node:|undici|\/proxy\/|\bat .+:\d+:\d+/

await t.test('row 32: whatever a server does with the operator’s secret, nobody else sees it', async (t) => {
  const stage = await mcpStage(t, {
    env: { MCP_SECRET_UP: CANARY },
    settings: { MCP_PROXY_LOG_LEVEL: 'trace' },
  })
  const tools = [tool('x')]
  const capabilities = { tools: {}, prompts: {} }
  const plain = legacy({ capabilities, tools })
  const server = await rawMcp(t, plain)
  const resource = await stage.register('s', server, {
    auth_type: 'bearer',
    auth_secret_ref: 'env:MCP_SECRET_UP',
  })
  const bot = await stage.enroll('bot', ['mcp.tools.call', 'mcp.prompts.get'])
  await stage.bind(bot, resource)
  for (const [how, act] of Object.entries(ECHOES)) {
    const listing = legacy({ capabilities, act })
    server.act = (res, told) => (told.rpc === 'tools/list' ? plain(res, told) : listing(res, told))
    for (const [method, params] of [
      ['tools/call', { name: 's.x' }],
      ['prompts/get', { name: 's.p' }],
      ['prompts/list', {}],
    ] as const) {
      for (const modern of [false, true]) {
        const { text, headers } = await stage.rpc(bot, method, { params, modern })
        t.notMatch(text + JSON.stringify(headers), SEEN, `${how}: ${method}`)
        t.notMatch(text, INTERNALS, `${how}: ${method}`)
      }
    }
  }
  const instructions = CANARY
  const read: Readonly<Record<string, Act>> = {
    'tools/list': (res, told) => sendJson(res, result(told, { tools: [tool('x', { description: CANARY })] })),
    initialize: (res, told) =>
      sendJson(res, result(told, { protocolVersion: '2025-11-25', capabilities, instructions })),
    'server/discover': (res, told) =>
      sendJson(
        res,
        result(told, { resultType: 'complete', supportedVersions: [MODERN_VERSION], instructions }),
      ),
  }
  for (const [rpc, act] of Object.entries(read)) {
    server.act = (res, told) => (told.rpc === rpc ? act(res, told) : plain(res, told))
    t.notMatch(JSON.stringify(await stage.refresh(resource)), SEEN, rpc)
  }
  t.notMatch(JSON.stringify(stage.log), SEEN)
  t.notMatch(JSON.stringify(await stage.rows({ limit: 1000 })), SEEN)
  t.ok(server.told.every(({ headers }) => headers.authorization === `Bearer ${CANARY}`))
})
