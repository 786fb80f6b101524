import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { requestFor } from '../../../support/certs/certified.ts'
import { without } from '../../../support/certs/openssl.ts'
import { proofSigner } from '../../../support/dpop.ts'
import { CHAT, type Identity, testGateway } from '../../../support/gateway.ts'

const TYPES = [
  { plural: 'users', field: 'user_name', type: 'user' },
  { plural: 'workloads', field: 'workload_name', type: 'workload' },
] as const

for (const { plural, field, type } of TYPES) {
  await t.test(
    `§2.1 a ${type} is created with its own prefix, certified by a request, gated and revoked`,
    { skip: without('openssl') },
    async (t) => {
      const gateway = await testGateway(t)
      const all = `/v1/admin/${plural}`
      const created = await gateway.admin('POST', all, {
        [field]: 'ann',
        display_name: 'Ann',
        capabilities: ['llm.chat'],
      })
      t.equal(created.status, 201)
      const id = `acme::${type}::ann`
      t.match(created.json, {
        principal_id: id,
        principal_type: type,
        [field]: 'ann',
        capabilities: ['llm.chat'],
      })
      t.notOk('private_key_pem' in created.json)
      t.equal((await gateway.admin('POST', all, { [field]: 'ann' })).status, 409)
      t.equal((await gateway.admin('POST', all, { agent_name: 'ann' })).status, 422)
      const list = await gateway.admin('GET', all)
      t.strictSame([list.json.total, list.json[plural][0].principal_id], [1, id])

      const { csr, key } = await requestFor(t)
      const certified = await gateway.admin('POST', `${all}/${id}/certificate`, { csr_pem: csr })
      t.equal(certified.status, 200, certified.text)
      const who: Identity = { id, cert: certified.json.cert_chain_pem, key }
      const chat = async () =>
        (await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })).status
      t.equal(await chat(), 200)
      const patched = await gateway.admin('PATCH', `${all}/${id}/capabilities`, { capabilities: [] })
      t.strictSame(patched.json.capabilities, [])
      t.equal(await chat(), 403)
      await gateway.admin('DELETE', `${all}/${id}`)
      t.equal(await chat(), 401)
      const rows = await gateway.rows()
      const actions = rows.map(({ action }) => action).filter((action) => action.startsWith(`${type}.`))
      t.strictSame(actions, [
        `${type}.created`,
        `${type}.certificate_issued`,
        `${type}.capabilities_patched`,
        `${type}.deactivated`,
      ])
      t.match(
        rows.find(({ action }) => action === 'egress_llm_chat'),
        { principal_id: created.json.principal_ref ?? id, principal_type: type },
      )
    },
  )
}

await t.test('§2.1 the three types do not meet: one name, three principals', async (t) => {
  const gateway = await testGateway(t)
  await gateway.enroll('ann', ['llm.chat'])
  await gateway.admin('POST', '/v1/admin/users', { user_name: 'ann' })
  await gateway.admin('POST', '/v1/admin/workloads', { workload_name: 'ann' })
  t.equal((await gateway.admin('GET', '/v1/admin/users/acme::ann')).status, 404)
  t.strictSame((await gateway.admin('GET', '/v1/admin/users/acme::user::ann')).json.capabilities, [])
  t.strictSame((await gateway.admin('GET', '/v1/admin/agents/acme::ann')).json.capabilities, ['llm.chat'])
})

await t.test(
  'docs/protocol.md#principals a request for more than a client certificate is refused, each for its own reason',
  async (t) => {
    const gateway = await testGateway(t)
    await gateway.admin('POST', '/v1/admin/users', { user_name: 'ann' })
    const path = '/v1/admin/users/acme::user::ann/certificate'
    const refused = await gateway.admin('POST', path, { csr_pem: 'nonsense' })
    t.strictSame([refused.status, refused.json.reason], [422, 'certificate_unreadable'])
    const ca = readFileSync(join(gateway.settings.dataDir, 'org-ca.crt'), 'utf8')
    t.equal((await gateway.admin('POST', path, { csr_pem: ca })).status, 422)
    t.equal((await gateway.admin('POST', path, {})).status, 422)
  },
)

await t.test('docs/protocol.md#principals a DPoP key is registered by its public part alone', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', [])
  const path = `/v1/admin/agents/${bot.id}/dpop-jwk`
  const { jwk, jkt, privateKey } = proofSigner()
  t.match(await gateway.admin('POST', path, jwk), { status: 200, json: { agent_id: bot.id, dpop_jkt: jkt } })
  t.match(await gateway.admin('POST', path, { jwk }), { status: 200, json: { dpop_jkt: jkt } })
  t.equal((await gateway.admin('GET', `/v1/admin/agents/${bot.id}`)).json.dpop_jkt, jkt)
  const bad = [
    privateKey.export({ format: 'jwk' }),
    { kty: 'oct', k: 'AAAA' },
    { ...jwk, x: 'AAAA' },
    { kty: 'RSA', n: Buffer.alloc(128, 255).toString('base64url'), e: 'AQAB' },
    {},
    { jwk, grace: 1 },
  ]
  for (const body of bad)
    t.equal((await gateway.admin('POST', path, body)).status, 422, JSON.stringify(body).slice(0, 40))
  t.equal((await gateway.admin('GET', `/v1/admin/agents/${bot.id}`)).json.dpop_jkt, jkt, 'unchanged')
  const [row] = await gateway.rows({ action: 'agent.dpop_jwk_set' })
  t.match(row?.detail, { subject: bot.id, dpop_jkt: jkt })
})
