import t from 'tap'
import { testGateway } from '../../../support/gateway.ts'

const RESOURCES = '/v1/admin/mcp-resources'
const PATH = `${RESOURCES}/bindings`
const PRIVATE = { settings: { MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true' } }

async function prepared(t: Parameters<typeof testGateway>[0]) {
  const gateway = await testGateway(t, PRIVATE)
  const register = async (name: string): Promise<string> =>
    (await gateway.admin('POST', RESOURCES, { name, endpoint_url: 'http://127.0.0.1:1/mcp' })).json
      .resource_id
  const bind = (agent_id: unknown, resource_id: unknown, more: object = {}) =>
    gateway.admin('POST', PATH, { agent_id, resource_id, ...more })
  await gateway.enroll('bot', [])
  return { gateway, bind, files: await register('files'), mail: await register('mail') }
}

await t.test(
  'docs/protocol.md#mcp-bindings a principal of any type is bound, listed and released',
  async (t) => {
    const { gateway, bind, files, mail } = await prepared(t)
    await gateway.admin('POST', '/v1/admin/users', { user_name: 'ann' })
    await gateway.admin('POST', '/v1/admin/workloads', { workload_name: 'job' })
    const { status, json, headers } = await bind('acme::bot', files)
    t.strictSame([status, headers.etag], [201, '"1"'])
    const { binding_id, created_at, ...rest } = json
    t.match(binding_id, /^mcpb_[0-9a-f]{24}$/)
    t.match(created_at, /Z$/)
    t.strictSame(rest, {
      agent_id: 'acme::bot',
      principal_type: 'agent',
      resource_id: files,
      resource_name: 'files',
      created_by: 'admin',
      changed_by: 'admin',
    })
    t.equal((await bind('acme::user::ann', files)).json.principal_type, 'user')
    t.equal((await bind('acme::workload::job', mail, { principal_type: 'workload' })).status, 201)

    const list = async (query: string) => (await gateway.admin('GET', PATH + query)).json
    t.equal((await list('')).length, 3)
    t.strictSame(await list('?agent_id=acme%3A%3Abot'), [json])
    t.equal((await list(`?resource_id=${files}`)).length, 2)
    t.strictSame(await list(`?agent_id=acme::bot&resource_id=${mail}`), [])
    t.equal(
      (await gateway.admin('GET', `${PATH}?agent=acme::bot`)).status,
      422,
      'a typo does not list everything',
    )

    t.strictSame((await gateway.admin('GET', `${PATH}/${binding_id}`)).json, json)
    t.equal((await gateway.admin('DELETE', `${PATH}/${binding_id}`)).status, 204)
    t.equal((await gateway.admin('DELETE', `${PATH}/${binding_id}`)).status, 404)
    t.equal((await gateway.admin('GET', `${PATH}/${binding_id}`)).status, 404)
    const detail = {
      subject: 'acme::bot',
      subject_type: 'agent',
      resource_id: files,
      resource: 'files',
      binding_id,
    }
    t.match(await gateway.rows({ action: 'mcp_binding.revoked' }), [{ principal_id: 'admin', detail }])
    const created = await gateway.rows({ action: 'mcp_binding.created', order: 'asc' })
    t.match(created[0], { principal_id: 'admin', detail })
    t.equal(created.length, 3)
  },
)

await t.test(
  'docs/protocol.md#mcp-bindings a second binding of the same two is a conflict, and an unknown one is named',
  async (t) => {
    const { gateway, bind, files } = await prepared(t)
    t.equal((await bind('acme::bot', files)).status, 201)
    t.equal((await bind('acme::bot', files)).status, 409)
    const refused = async (answer: ReturnType<typeof bind>) => {
      const { status, json } = await answer
      return [status, ...json.detail.errors.map(({ field }: { field: string }) => field)]
    }
    t.strictSame(await refused(bind('acme::none', files)), [422, 'agent_id'])
    t.strictSame(await refused(bind('acme::bot', 'mcpr_0')), [422, 'resource_id'])
    t.strictSame(await refused(bind('acme::none', 'mcpr_0')), [422, 'agent_id', 'resource_id'])
    t.strictSame(await refused(bind('acme::bot', files, { principal_type: 'user' })), [422, 'agent_id'])
    t.strictSame(await refused(bind('acme::bot', files, { principal_type: 'group' })), [
      422,
      'principal_type',
    ])
    t.strictSame(await refused(bind('acme::bot', files, { resource: files })), [422, 'resource'])
    t.strictSame(await refused(bind(7, null)), [422, 'agent_id', 'resource_id'])
    t.equal((await gateway.admin('GET', PATH)).json.length, 1)
  },
)

await t.test('a resource that is deleted takes its bindings along', async (t) => {
  const { gateway, bind, files, mail } = await prepared(t)
  await bind('acme::bot', files)
  await bind('acme::bot', mail)
  t.equal((await gateway.admin('DELETE', `${RESOURCES}/${files}`)).status, 204)
  t.match((await gateway.admin('GET', PATH)).json, [{ resource_id: mail }])
})

await t.test('bindings are never taken for a resource of that id', async (t) => {
  const { gateway } = await prepared(t)
  t.strictSame((await gateway.admin('GET', PATH)).json, [])
  for (const [method, path, status] of [
    ['PATCH', PATH, 405],
    ['DELETE', PATH, 405],
    // No resource has that id.
    ['POST', `${PATH}/refresh`, 404],
  ] as const) {
    t.equal((await gateway.admin(method, path)).status, status, `${method} ${path}`)
  }
})
