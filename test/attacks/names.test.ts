import t from 'tap'
import { testGateway } from '../support/gateway.ts'

const fault = (field: string) => [{ field, message: /not "\." or "\.\."/ }]

await t.test(
  'E4 a name that is a step of a path is refused for all kinds, and is no fault of ours',
  async (t) => {
    const gateway = await testGateway(t, { settings: { MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true' } })
    const key = { cert_pem: 'x', private_key_pem: 'x' }
    const svid = { svid_pem: 'x', svid_key_pem: 'x' }
    const kinds: readonly (readonly [path: string, field: string, rest: object])[] = [
      ['agents', 'agent_name', {}],
      ['agents/enroll/byoca', 'agent_name', key],
      ['agents/enroll/spiffe', 'agent_name', svid],
      ['users', 'user_name', {}],
      ['workloads', 'workload_name', {}],
      ['mcp-resources', 'name', { endpoint_url: 'http://127.0.0.1:9/' }],
    ]
    for (const [path, field, rest] of kinds) {
      for (const name of ['.', '..']) {
        const { status, json } = await gateway.admin('POST', `/v1/admin/${path}`, { [field]: name, ...rest })
        t.match([status, json.detail?.errors], [422, fault(field)], `${path} ${name}`)
      }
    }
    const plain = kinds.filter(([path]) => !path.includes('enroll'))
    for (const [path, field, rest] of plain) {
      for (const name of ['...', '.a', 'a.', 'a..b']) {
        const named = path === 'mcp-resources' ? `${name}-${name}` : name
        const { status, text } = await gateway.admin('POST', `/v1/admin/${path}`, { [field]: named, ...rest })
        t.equal(status, 201, `${path} ${named}: ${text}`)
      }
    }
    const { json } = await gateway.admin('POST', '/v1/admin/mcp-resources', {
      name: 'up',
      endpoint_url: 'http://127.0.0.1:9/',
    })
    const path = `/v1/admin/mcp-resources/${json.resource_id}`
    t.equal((await gateway.admin('PATCH', path, { name: '..' })).status, 422)
    t.strictSame(
      gateway.log.filter(({ level }) => level >= 50),
      [],
    )
  },
)
