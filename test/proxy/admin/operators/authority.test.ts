import { Agent } from 'node:https'
import t from 'tap'
import { ADMIN_CAPABILITIES } from '../../../../plugins/operators/capabilities.ts'
import { nonceOf, proof, proofSigner, tokenFor } from '../../../support/dpop.ts'
import { ADMIN_SECRET, PLUGIN_FILES, testGateway } from '../../../support/gateway.ts'
import { as, onTheMachine, operatorNamed } from '../../../support/operators.ts'

const one = '/v1/admin/operators/acme::operator'

await t.test('nobody raises its own set, whoever it is; lowering it is fine', async (t) => {
  const gateway = await testGateway(t)
  const alice = as(gateway, await operatorNamed(gateway, 'alice', ['admin.read', 'admin.operators']))
  const raised = await alice('PATCH', `${one}::alice/capabilities`, { capabilities: ADMIN_CAPABILITIES })
  t.equal(raised.status, 403)
  t.match(raised.json, { reason: 'own_authority', detail: { required_capability: 'admin.enroll' } })
  const [row] = await gateway.rows({ principal: 'acme::operator::alice', status: 'denied' })
  t.match(row, {
    action: 'operator.capabilities_patched',
    detail: { reason: 'own_authority', via: 'certificate' },
  })
  // By the same person beside the secret: the certificate decides.
  const beside = await alice(
    'PATCH',
    `${one}::alice/capabilities`,
    { capabilities: ADMIN_CAPABILITIES },
    { 'x-admin-secret': ADMIN_SECRET },
  )
  t.equal(beside.json.reason, 'own_authority')
  t.equal(
    (await alice('PATCH', `${one}::alice/capabilities`, { capabilities: ['admin.operators'] })).status,
    200,
  )
  t.equal((await alice('GET', '/v1/admin/agents')).status, 403, 'it holds at the next request')
  t.equal((await alice('PATCH', `${one}::alice/capabilities`, { capabilities: ['admin.read'] })).status, 403)
})

await t.test(
  'admin.* is given by holders of admin.operators alone, whatever else somebody holds',
  async (t) => {
    const gateway = await testGateway(t)
    const all = ADMIN_CAPABILITIES.filter((capability) => capability !== 'admin.operators')
    const mallory = as(gateway, await operatorNamed(gateway, 'mallory', all))
    await operatorNamed(gateway, 'bob', [])
    const csr_pem = '-----BEGIN CERTIFICATE REQUEST-----'
    for (const [method, path, body] of [
      ['PATCH', `${one}::mallory/capabilities`, { capabilities: ADMIN_CAPABILITIES }],
      ['PATCH', `${one}::bob/capabilities`, { capabilities: ['admin.operators'] }],
      ['POST', '/v1/admin/operators', { operator_name: 'puppet', capabilities: ['admin.operators'] }],
      ['POST', `${one}::bob/rotate-cert`, {}],
      ['POST', `${one}::bob/certificate`, { csr_pem }],
      ['POST', `${one}::bob/dpop-jwk`, {}],
      ['POST', `${one}::bob/reactivate`, undefined],
      ['DELETE', `${one}::bob`, undefined],
      ['POST', '/v1/admin/secret/rotate', { new_secret: 'a-secret-of-mallorys' }],
      ['POST', '/v1/admin/signing-key/rotate', undefined],
    ] as const) {
      const { status, json } = await mallory(method, path, body)
      t.equal(status, 403, `${method} ${path}`)
      t.equal(json.detail.required_capability, 'admin.operators', `${method} ${path}`)
    }
    // The same operator as a principal of another kind: its path does not lead there.
    const asUser = await mallory('PATCH', '/v1/admin/users/acme::operator::mallory/capabilities', {
      capabilities: [],
    })
    t.equal(asUser.status, 404)
    t.equal((await mallory('POST', '/v1/admin/agents/acme::operator::mallory/erase')).status, 404)
  },
)

await t.test('the certificate decides who it is; a wrong secret is refused in any case', async (t) => {
  const gateway = await testGateway(t)
  const alice = as(gateway, await operatorNamed(gateway, 'alice', ['admin.read', 'admin.enroll']))
  const agent = await gateway.enroll('bot', ['llm.chat'])
  const create = (user_name: string) => ['POST', '/v1/admin/users', { user_name }] as const
  t.equal(
    (await alice(...create('one'), { 'x-admin-secret': ADMIN_SECRET })).json.created_by,
    'acme::operator::alice',
  )
  for (const wrong of ['not-the-secret-at-all', '']) {
    const refused = await alice(...create('two'), { 'x-admin-secret': wrong })
    t.equal(refused.json.reason, 'admin_secret_invalid')
  }
  const secret = { 'x-admin-secret': ADMIN_SECRET }
  const breakGlass = await gateway.call(agent, 'POST', '/v1/admin/users', {
    body: { user_name: 'three' },
    headers: secret,
  })
  t.equal(breakGlass.json.created_by, 'admin', 'any other certificate beside a good secret')
  t.equal(
    (await gateway.call(agent, 'GET', '/v1/admin/users')).json.reason,
    'admin_secret_invalid',
    'and without one',
  )
  t.equal(
    (await gateway.call(null, 'GET', '/v1/admin/users')).json.reason,
    'admin_secret_invalid',
    'nobody at all',
  )
})

await t.test('a deactivated operator is 401 at the next request, beside a good secret too', async (t) => {
  const gateway = await testGateway(t)
  const identity = await operatorNamed(gateway, 'alice', ['admin.read'])
  const alice = as(gateway, identity)
  t.equal((await alice('GET', '/v1/admin/agents')).status, 200)
  t.equal((await gateway.admin('DELETE', `${one}::alice`)).status, 204)
  for (const headers of [undefined, { 'x-admin-secret': ADMIN_SECRET }]) {
    const refused = await alice('GET', '/v1/admin/agents', undefined, headers)
    t.equal(refused.status, 401)
    t.equal(refused.json.reason, 'principal_deactivated')
  }
  t.equal((await gateway.admin('POST', `${one}::alice/reactivate`)).status, 200)
  t.equal((await alice('GET', '/v1/admin/agents')).status, 200)
})

await t.test('operators call no models: their sets open nothing but administration', async (t) => {
  const gateway = await testGateway(t)
  const owner = await operatorNamed(gateway, 'owner', ADMIN_CAPABILITIES)
  const body = { model: 'gpt-5-mini', messages: [{ role: 'user', content: 'hi' }] }
  const refused = await gateway.call(owner, 'POST', '/v1/chat/completions', { body })
  t.equal(refused.status, 403)
  t.equal(refused.json.detail.required_capability, 'llm.chat')
  const bound = await gateway.admin('POST', '/v1/admin/mcp-resources/bindings', {
    agent_id: owner.id,
    resource_id: 'mcpr_0',
  })
  t.equal(bound.status, 422, 'nor are they bound to MCP servers')
  const agent = await gateway.enroll('bot', ['llm.chat'])
  const administering = await gateway.call(agent, 'GET', '/v1/admin/agents')
  t.equal(administering.status, 403, 'and who calls models administers nothing')
})

await t.test(
  'what an operator may do is asked once more behind the body, and when the change is stored',
  async (t) => {
    const gateway = await testGateway(t)
    const alice = as(gateway, await operatorNamed(gateway, 'alice', ['admin.enroll']))
    // Many changes under way while the operator is deactivated: each is done before it, or not at all.
    const under = Array.from({ length: 20 }, (_, i) =>
      alice('POST', '/v1/admin/users', { user_name: `u${i}` }),
    )
    const ended = gateway.admin('DELETE', `${one}::alice`)
    const [answers] = await Promise.all([Promise.all(under), ended])
    for (const { status, text } of answers) t.ok([201, 401, 503].includes(status), `${status} ${text}`)
    const rows = await gateway.rows({ order: 'asc' })
    const end = rows.findIndex(({ action }) => action === 'operator.deactivated')
    const late = rows
      .slice(end)
      .filter(({ action, status }) => action === 'user.created' && status === 'success')
    t.ok(end > 0)
    t.same(late, [], 'no change of theirs stands behind it')
  },
)

await t.test('where proofs are demanded, an operator proves the registered key, once', async (t) => {
  const gateway = await testGateway(t, {
    files: { ...PLUGIN_FILES, '20-dpop.yaml': 'plugin: dpop\negress_dpop_mode: required\n' },
  })
  const identity = await operatorNamed(gateway, 'alice', ['admin.read'])
  const alice = as(gateway, identity)
  t.equal((await alice('GET', '/v1/admin/agents')).json.reason, 'proof_required')
  t.equal((await gateway.admin('GET', '/v1/admin/agents')).status, 200, 'the secret is none of a principal')
  const signer = proofSigner()
  t.equal((await gateway.admin('POST', `${one}::alice/dpop-jwk`, signer.jwk)).status, 200)
  const htu = `${gateway.url}/v1/admin/agents`
  const dpop = proof(signer, { htm: 'GET', htu, nonce: await nonceOf(gateway, identity) })
  t.equal((await alice('GET', '/v1/admin/agents', undefined, { dpop })).status, 200)
  const replayed = await alice('GET', '/v1/admin/agents', undefined, { dpop })
  t.equal(replayed.json.reason, 'proof_invalid', 'a proof passes once')
  const other = proof(proofSigner(), { htm: 'GET', htu, nonce: await nonceOf(gateway, identity) })
  t.equal((await alice('GET', '/v1/admin/agents', undefined, { dpop: other })).json.reason, 'proof_invalid')
})

await t.test('an access token that is narrowed administers no more than its scope', async (t) => {
  const gateway = await testGateway(t)
  const identity = await operatorNamed(gateway, 'alice', ['admin.read', 'admin.enroll', 'admin.grant'])
  const { json } = await tokenFor(gateway, identity, null, { scope: 'admin.read admin.enroll' })
  const headers = { authorization: `Bearer ${json.access_token}` }
  const alice = as(gateway, identity)
  t.equal((await alice('GET', '/v1/admin/agents', undefined, headers)).status, 200)
  const refused = await alice(
    'POST',
    '/v1/admin/users',
    { user_name: 'a', capabilities: ['llm.chat'] },
    headers,
  )
  t.equal(refused.json.detail.required_capability, 'admin.grant', 'asked by the operation, too')
  t.equal((await alice('GET', '/v1/admin/audit', undefined, headers)).status, 403)
})

await t.test('a page of another site does not administer by the certificate of its visitor', async (t) => {
  const gateway = await testGateway(t)
  const alice = as(gateway, await operatorNamed(gateway, 'alice', ['admin.enroll']))
  for (const headers of [{ origin: 'https://evil.example' }, { 'sec-fetch-site': 'cross-site' }]) {
    const refused = await alice(
      'POST',
      '/v1/admin/users',
      { user_name: 'eve' },
      headers as Record<string, string>,
    )
    t.equal(refused.json.reason, 'origin_not_allowed')
  }
  const own = await alice('POST', '/v1/admin/users', { user_name: 'ada' }, { origin: gateway.url })
  t.equal(own.status, 201)
})

await t.test('a refusal that is overtaken by a change of its operator is asked for again', async (t) => {
  const gateway = await testGateway(t)
  const alice = await operatorNamed(gateway, 'alice', ['admin.enroll'])
  const agent = new Agent({ ca: gateway.ca, cert: alice.cert, key: alice.key, keepAlive: true })
  t.teardown(() => agent.destroy())
  const machine = onTheMachine(gateway)
  const body = { user_name: 'eve', capabilities: ['llm.chat'] }
  const answered = new Set<string>()
  for (let round = 0; round < 25; round += 1) {
    const asked = Array.from({ length: 8 }, () =>
      gateway.call(alice, 'POST', '/v1/admin/users', { body, agent }),
    )
    for (const more of [[], ['admin.audit'], ['admin.read']])
      await machine('PATCH', `${one}::alice/capabilities`, { capabilities: ['admin.enroll', ...more] })
    for (const { status, json } of await Promise.all(asked)) answered.add(`${status} ${json.reason}`)
  }
  t.ok(answered.delete('403 capability_missing'))
  answered.delete('503 overloaded')
  t.same([...answered], [], 'and is no fault')
})
