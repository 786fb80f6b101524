import t from 'tap'
import { controlPath } from '../../../../proxy/http/control-socket.ts'
import { overSocket } from '../../../support/control.ts'
import { ADMIN_SECRET, type TestGateway, testGateway } from '../../../support/gateway.ts'
import { as, operatorNamed } from '../../../support/operators.ts'

const OWNER = ['admin.read', 'admin.operators']
const NEW_SECRET = 'another-secret-of-theirs'

const disable = '/v1/admin/secret/disable'
const enable = '/v1/admin/secret/enable'

const local = (gateway: TestGateway) => overSocket(controlPath(gateway.settings.dataDir))

await t.test(
  'an owner disables the shared secret, and only the machine itself enables it again',
  async (t) => {
    const gateway = await testGateway(t)
    const alice = as(gateway, await operatorNamed(gateway, 'alice', OWNER))
    t.match((await alice('GET', '/v1/admin/secret')).json, { is_set: true, disabled: false })
    t.equal((await alice('POST', disable)).status, 204)
    t.equal((await alice('POST', disable)).status, 204, 'twice is no fault')
    const refused = await gateway.admin('GET', '/v1/admin/agents')
    t.equal(refused.status, 403)
    t.equal(refused.json.reason, 'admin_secret_invalid', 'a right one is as wrong as any other')
    t.match((await alice('GET', '/v1/admin/secret')).json, { disabled: true })

    t.equal((await alice('POST', enable)).json.reason, 'machine_only', 'not over the network')
    const rotated = await alice('POST', '/v1/admin/secret/rotate', { new_secret: NEW_SECRET })
    t.equal(rotated.status, 204)
    const still = await gateway.call(null, 'GET', '/v1/admin/agents', {
      headers: { 'x-admin-secret': NEW_SECRET },
    })
    t.equal(still.status, 403, 'a new secret is disabled too')

    t.equal((await local(gateway)('POST', enable)).status, 204)
    const again = await gateway.call(null, 'GET', '/v1/admin/agents', {
      headers: { 'x-admin-secret': NEW_SECRET },
    })
    t.equal(again.status, 200)
    const rows = await gateway.rows()
    const actions = rows.map(({ action, principal_id: who }) => `${action} ${who}`)
    t.equal(actions.filter((text) => text === 'admin.secret_disabled acme::operator::alice').length, 1)
    t.equal(actions.filter((text) => text.startsWith('admin.secret_enabled socket:')).length, 1)
  },
)

await t.test(
  'make admin-secret, on the machine itself, sets a secret and takes it into service',
  async (t) => {
    const gateway = await testGateway(t)
    const alice = as(gateway, await operatorNamed(gateway, 'alice', OWNER))
    t.equal((await alice('POST', disable)).status, 204)
    const set = await local(gateway)('POST', '/v1/admin/secret/rotate', { new_secret: NEW_SECRET })
    t.equal(set.status, 204)
    const entered = await gateway.call(null, 'GET', '/v1/admin/agents', {
      headers: { 'x-admin-secret': NEW_SECRET },
    })
    t.equal(entered.status, 200)
    const rows = await gateway.rows({ action: 'admin.secret_enabled' })
    t.equal(rows.length, 1)
  },
)

await t.test('while nobody else could administer, the secret is not disabled', async (t) => {
  const gateway = await testGateway(t)
  t.equal((await gateway.admin('POST', disable)).json.reason, 'last_owner', 'there is no operator')
  await gateway.admin('POST', '/v1/admin/operators', { operator_name: 'alice', capabilities: OWNER })
  t.equal((await gateway.admin('POST', disable)).json.reason, 'last_owner', 'an owner without a certificate')
  await operatorNamed(gateway, 'bob', ['admin.read'])
  t.equal(
    (await gateway.admin('POST', disable)).json.reason,
    'last_owner',
    'a certificate without the capability',
  )
  await operatorNamed(gateway, 'carol', OWNER)
  t.equal((await gateway.admin('POST', disable)).status, 204)
})

await t.test('the last owner cannot be taken out while the secret is disabled', async (t) => {
  const gateway = await testGateway(t)
  const alice = as(gateway, await operatorNamed(gateway, 'alice', OWNER))
  const bob = as(gateway, await operatorNamed(gateway, 'bob', OWNER))
  const self = '/v1/admin/operators/acme::operator::alice'
  t.equal((await bob('PATCH', `${self}/capabilities`, { capabilities: ['admin.read'] })).status, 200)
  t.equal((await bob('PATCH', `${self}/capabilities`, { capabilities: OWNER })).status, 200)
  t.equal((await alice('POST', disable)).status, 204)
  t.equal((await alice('DELETE', '/v1/admin/operators/acme::operator::bob')).status, 204, 'one of two')
  for (const [method, path, body] of [
    ['DELETE', self, undefined],
    ['PATCH', `${self}/capabilities`, { capabilities: ['admin.read'] }],
    ['PATCH', `${self}/capabilities`, { capabilities: [] }],
  ] as const) {
    const refused = await alice(method, path, body)
    t.equal(refused.status, 409, `${method} ${path}`)
    t.equal(refused.json.reason, 'last_owner')
  }
  t.equal((await local(gateway)('POST', enable)).status, 204)
  t.equal((await alice('DELETE', self)).status, 204, 'with the secret there is another way in')
})

await t.test('two owners who take each other out at once leave one of them', async (t) => {
  const gateway = await testGateway(t)
  const alice = as(gateway, await operatorNamed(gateway, 'alice', OWNER))
  const bob = as(gateway, await operatorNamed(gateway, 'bob', OWNER))
  t.equal((await alice('POST', disable)).status, 204)
  for (let round = 0; round < 5; round += 1) {
    const answers = await Promise.all([
      alice('DELETE', '/v1/admin/operators/acme::operator::bob'),
      bob('DELETE', '/v1/admin/operators/acme::operator::alice'),
    ])
    const done = answers.filter(({ status }) => status === 204)
    t.equal(done.length, 1, answers.map(({ status, text }) => `${status} ${text}`).join('; '))
    await local(gateway)('POST', '/v1/admin/operators/acme::operator::alice/reactivate')
    await local(gateway)('POST', '/v1/admin/operators/acme::operator::bob/reactivate')
  }
})

await t.test('the use of the secret is counted and shown once there are operators', async (t) => {
  const gateway = await testGateway(t)
  const uses = async (): Promise<number> => {
    const { text } = await local(gateway)('GET', '/metrics')
    return Number(/^sallyport_admin_secret_uses_total (\d+)$/m.exec(text)?.[1])
  }
  t.equal((await gateway.admin('GET', '/v1/admin/agents')).status, 200)
  const before = await uses()
  t.ok(before > 0)
  t.equal((await gateway.admin('GET', '/v1/admin/agents')).status, 200)
  t.equal(await uses(), before + 1)
  t.equal(
    (await gateway.call(null, 'GET', '/v1/admin/agents', { headers: { 'x-admin-secret': 'wrong-secret' } }))
      .status,
    403,
  )
  t.equal(await uses(), before + 1, 'a wrong one opens nothing')
})

await t.test('a disabled secret stays disabled after a restart, whatever the environment says', async (t) => {
  const gateway = await testGateway(t)
  const alice = await operatorNamed(gateway, 'alice', OWNER)
  t.equal((await as(gateway, alice)('POST', disable)).status, 204)
  await gateway.close()
  const next = await testGateway(t, {
    settings: { MCP_PROXY_DATA_DIR: gateway.settings.dataDir, MCP_PROXY_ADMIN_SECRET: ADMIN_SECRET },
  })
  t.equal((await next.admin('GET', '/v1/admin/agents')).status, 403)
  const setup = await next.call(null, 'POST', '/v1/admin/setup', {
    body: { setup_code: next.setupCode, new_secret: NEW_SECRET },
  })
  t.equal(setup.status, 409, 'nor does the code of a first start open it')
  t.equal((await as(next, alice)('GET', '/v1/admin/agents')).status, 200)
})
