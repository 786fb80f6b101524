import t from 'tap'
import { ADMIN_CAPABILITIES } from '../../../../plugins/operators/capabilities.ts'
import { OPERATIONS } from '../../../../proxy/admin/http/operations.ts'
import { testGateway } from '../../../support/gateway.ts'
import { as, operatorNamed } from '../../../support/operators.ts'

interface Described {
  readonly method: string
  readonly path: string
  readonly capability: string
}

/** The demand of each route of administration (docs/operators.md#capabilities), by the beginning of its path. */
function expectedOf(method: string, path: string): string {
  if (/^\/v1\/admin\/(audit|costs)(\/|$)/.test(path)) return 'admin.audit'
  // It tells of calls.
  if (method === 'GET' && path.endsWith('/dpop-jwk')) return 'admin.audit'
  if (method === 'GET') return 'admin.read'
  const rules: readonly (readonly [RegExp, string])[] = [
    [/^\/v1\/admin\/operators/, 'admin.operators'],
    [/^\/v1\/admin\/(secret|signing-key|audit-key)\//, 'admin.operators'],
    [/^\/v1\/admin\/(ca|archive)(\/|$)/, 'admin.settings'],
    [/^\/v1\/admin\/approvals\//, 'admin.approve'],
    [/^\/v1\/admin\/mcp-resources\/bindings/, 'admin.grant'],
    [/^\/v1\/admin\/(mcp-resources|providers)(\/|$)/, 'admin.tools'],
    [/\/stops$/, 'admin.stop'],
    [/\/stops\//, 'admin.grant'],
    [/\/(capabilities|labels)$|\/sets\/|\/limits(\/|$)|\/rehearsals$|\/candidate(\/|$)/, 'admin.grant'],
    [/^\/v1\/admin\/(agents|users|workloads|grants|accounts)/, 'admin.enroll'],
    [/^\/v1\/admin\/exports\//, 'admin.audit'],
  ]
  return rules.find(([pattern]) => pattern.test(path))?.[1] ?? 'nothing'
}

await t.test('each admin route states the capability that it demands, in /openapi.json too', async (t) => {
  const gateway = await testGateway(t)
  const document = (await gateway.call(null, 'GET', '/openapi.json')).json
  const described: Described[] = []
  for (const [path, methods] of Object.entries<Record<string, never>>(document.paths)) {
    if (!path.startsWith('/v1/admin/') || path === '/v1/admin/setup') continue
    for (const [method, { 'x-required-capability': capability }] of Object.entries(methods))
      described.push({ method: method.toUpperCase(), path, capability: String(capability) })
  }
  t.ok(described.length > 50, `${described.length} routes`)
  for (const { method, path, capability } of described) {
    // What people ask for as themselves is of no kind.
    if (/^\/v1\/admin\/(sessions?|proposals)(\/|$)/.test(path)) continue
    t.equal(capability, expectedOf(method, path), `${method} ${path}`)
  }

  // Two of them: so many refusals of one would be summarised.
  const nobody = as(gateway, await operatorNamed(gateway, 'nobody', []))
  const another = as(gateway, await operatorNamed(gateway, 'another', []))
  for (const [index, { method, path, capability }] of described.entries()) {
    const url = path.replaceAll(/\{\w+\}/g, 'acme::ada')
    const { status, json } = await (index % 2 === 0 ? nobody : another)(
      method,
      url,
      method === 'POST' || method === 'PATCH' ? {} : undefined,
    )
    t.equal(status, 403, `${method} ${path}`)
    t.equal(json.reason, 'capability_missing', `${method} ${path}`)
    t.equal(json.detail.required_capability, capability, `${method} ${path}`)
  }
  t.equal((await nobody('GET', '/metrics')).json.detail.required_capability, 'admin.read', 'metrics')
  const denied = await gateway.rows({ order: 'asc', limit: 1000, status: 'denied' })
  const actions = new Set(denied.map(({ action }) => action))
  for (const action of [
    'admin.read',
    'user.created',
    'ca.attached',
    'mcp_binding.created',
    'admin.secret_disabled',
  ])
    t.ok(actions.has(action), `a denied row of ${action}`)
})

await t.test('an operator who holds what a route demands is let in, by that capability alone', async (t) => {
  const gateway = await testGateway(t)
  const doors: Readonly<
    Record<string, readonly [method: string, path: string, body: unknown, status: number]>
  > = {
    'admin.read': ['GET', '/v1/admin/agents', undefined, 200],
    'admin.enroll': ['POST', '/v1/admin/users', { user_name: 'ada' }, 201],
    'admin.grant': ['PATCH', '/v1/admin/users/acme::user::zoe/capabilities', { capabilities: [] }, 200],
    'admin.tools': ['DELETE', '/v1/admin/mcp-resources/mcpr_0', undefined, 404],
    'admin.audit': ['POST', '/v1/admin/audit/verify', undefined, 200],
    'admin.settings': ['DELETE', `/v1/admin/ca/${'0'.repeat(64)}`, undefined, 404],
    'admin.approve': ['POST', '/v1/admin/approvals/apr_0/approve', {}, 404],
    'admin.operators': ['POST', '/v1/admin/operators', { operator_name: 'new' }, 201],
    'admin.stop': ['POST', '/v1/admin/stops', { scope: { kind: 'workloads' }, reason: 'mine' }, 201],
  }
  t.same(Object.keys(doors), [...ADMIN_CAPABILITIES])
  await gateway.admin('POST', '/v1/admin/users', { user_name: 'zoe' })
  for (const [capability, [method, path, body, status]] of Object.entries(doors)) {
    const name = capability.replace('.', '-')
    const others = ADMIN_CAPABILITIES.filter((one) => one !== capability)
    const refused = as(gateway, await operatorNamed(gateway, `not-${name}`, others))
    t.equal(
      (await refused(method, path, body)).json.detail.required_capability,
      capability,
      `without ${capability}`,
    )
    const allowed = as(gateway, await operatorNamed(gateway, name, [capability]))
    t.equal((await allowed(method, path, body)).status, status, `with ${capability} alone`)
  }
})

await t.test('to enroll with a set that opens anything demands admin.grant too', async (t) => {
  const gateway = await testGateway(t)
  const enroller = as(gateway, await operatorNamed(gateway, 'enroller', ['admin.enroll']))
  for (const [path, field] of [
    ['/v1/admin/agents', 'agent_name'],
    ['/v1/admin/users', 'user_name'],
    ['/v1/admin/workloads', 'workload_name'],
  ] as const) {
    const refused = await enroller('POST', path, { [field]: 'eve', capabilities: ['llm.chat'] })
    t.equal(refused.status, 403, path)
    t.equal(refused.json.detail.required_capability, 'admin.grant', path)
    t.equal((await enroller('POST', path, { [field]: 'ada' })).status, 201, path)
  }
  const denied = await gateway.rows({ principal: 'acme::operator::enroller', status: 'denied' })
  t.same(denied.map(({ action }) => action).toSorted(), ['agent.created', 'user.created', 'workload.created'])
  t.same([...new Set(denied.map(({ detail }) => detail.required_capability))], ['admin.grant'])
})

await t.test('admin.* stands in the sets of operators alone, and nothing else stands there', async (t) => {
  const gateway = await testGateway(t)
  for (const [path, body] of [
    ['/v1/admin/users', { user_name: 'eve', capabilities: ['llm.chat', 'admin.read'] }],
    ['/v1/admin/operators', { operator_name: 'eve', capabilities: ['admin.read', 'llm.chat'] }],
    ['/v1/admin/operators', { operator_name: 'eve', capabilities: ['admin.everything'] }],
  ] as const) {
    const refused = await gateway.admin('POST', path, body)
    t.equal(refused.status, 422, path)
    t.match(refused.json.detail.errors[0].field, /^capabilities\[[01]\]$/)
  }
  const resource = {
    name: 'files',
    endpoint_url: 'https://files.example/mcp',
    required_capability: 'admin.read',
  }
  t.equal((await gateway.admin('POST', '/v1/admin/mcp-resources', resource)).status, 422)
  const { json } = await gateway.admin('GET', '/v1/admin/capabilities')
  for (const capability of ADMIN_CAPABILITIES) t.ok(json.built_in.includes(capability), capability)
  t.same(json.operator_defined, [])
})

await t.test('every operation says what it demands', (t) => {
  for (const kind of Object.values(OPERATIONS)) {
    for (const { name, demands, action } of Object.values(kind)) {
      t.ok((ADMIN_CAPABILITIES as readonly string[]).includes(demands), name)
      t.match(action, /^[a-z_]+\.[a-z_]+$/, name)
    }
  }
  t.end()
})
