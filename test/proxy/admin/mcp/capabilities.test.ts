import t from 'tap'
import { testGateway } from '../../../support/gateway.ts'

const PATH = '/v1/admin/capabilities'

await t.test(
  '§2.2 the vocabulary: what is built in, what tools define, and what operators made up',
  async (t) => {
    const gateway = await testGateway(t, { settings: { MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true' } })
    const built_in = [
      'llm.chat',
      'mcp.tools.list',
      'mcp.tools.call',
      'mcp.resources.read',
      'mcp.prompts.get',
      'http.get',
      'admin.read',
      'admin.enroll',
      'admin.grant',
      'admin.tools',
      'admin.audit',
      'admin.settings',
      'admin.approve',
      'admin.operators',
      'admin.stop',
    ]
    t.strictSame((await gateway.admin('GET', PATH)).json, {
      built_in,
      tool_defined: [],
      operator_defined: [],
    })
    await gateway.enroll('a', ['llm.chat', 'my.own', 'files.read'])
    await gateway.enroll('b', ['my.own'])
    await gateway.admin('POST', '/v1/admin/users', { user_name: 'c', capabilities: ['my.own', 'other'] })
    const endpoint_url = 'http://127.0.0.1:1/mcp'
    const tool_capabilities = { read: 'files.read', call: 'mcp.tools.call' }
    await gateway.admin('POST', '/v1/admin/mcp-resources', { name: 'files', endpoint_url, tool_capabilities })
    await gateway.admin('POST', '/v1/admin/mcp-resources', {
      name: 'x',
      endpoint_url,
      required_capability: 'x.use',
    })
    const { status, json } = await gateway.admin('GET', PATH)
    t.equal(status, 200)
    t.strictSame(json, {
      built_in,
      tool_defined: [
        { capability: 'files.read', resource: 'files', tool: 'read' },
        { capability: 'x.use', resource: 'x', tool: null },
      ],
      operator_defined: [
        { capability: 'my.own', principals: 3 },
        { capability: 'other', principals: 1 },
      ],
    })
  },
)

await t.test('§5.1 the vocabulary is for operators', async (t) => {
  const gateway = await testGateway(t)
  const agent = await gateway.enroll('a', ['llm.chat'])
  t.equal((await gateway.call(agent, 'GET', PATH)).status, 403)
})
