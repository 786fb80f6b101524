import t from 'tap'
import { CHAT, type Identity, type TestGateway, testGateway } from '../support/gateway.ts'

const chat = async (gateway: TestGateway, who: Identity): Promise<number> =>
  (await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })).status

await t.test('§3 the first PATCH opens the door, the next one closes it again', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', [])
  const path = `/v1/admin/agents/${bot.id}/capabilities`
  t.equal(await chat(gateway, bot), 403)
  t.equal((await gateway.admin('PATCH', path, { capabilities: ['llm.chat'] })).status, 200)
  t.equal(await chat(gateway, bot), 200)
  t.equal((await gateway.admin('PATCH', path, { capabilities: ['http.get'] })).status, 200)
  t.equal(await chat(gateway, bot), 403, 'a token absent from the list is revoked')
  const rows = await gateway.rows({ action: 'egress_llm_chat', status: 'denied' })
  t.equal(rows.length, 2, 'the first refusal and the one after the revoke are in the ledger')
})

await t.test('§3 a PATCH that violates the limits changes nothing', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const path = `/v1/admin/agents/${bot.id}/capabilities`
  const before = await gateway.rows()
  t.equal((await gateway.admin('PATCH', path, { capabilities: ['llm.chat', 'NOT ONE'] })).status, 422)
  t.strictSame((await gateway.admin('GET', `/v1/admin/agents/${bot.id}`)).json.capabilities, ['llm.chat'])
  t.equal((await gateway.rows()).length, before.length, 'and leaves no row')
  t.equal(await chat(gateway, bot), 200)
})

await t.test('§3 every capabilities PATCH of an agent counts its federation_revision up', async (t) => {
  const gateway = await testGateway(t)
  const { json } = await gateway.admin('POST', '/v1/admin/agents', { agent_name: 'far', federated: true })
  const path = '/v1/admin/agents/acme::far/capabilities'
  const first = await gateway.admin('PATCH', path, { capabilities: ['llm.chat'] })
  const second = await gateway.admin('PATCH', path, { capabilities: ['llm.chat'] })
  t.equal(json.federated, true)
  t.strictSame(
    [first.json.federation_revision, second.json.federation_revision],
    [json.federation_revision + 1, json.federation_revision + 2],
  )
})

await t.test(
  '§3 a deactivated agent is refused on its next request, and served again once reactivated',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    t.equal((await gateway.admin('DELETE', `/v1/admin/agents/${bot.id}`)).status, 204)
    const refused = await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
    t.strictSame([refused.status, refused.json.reason], [401, 'principal_deactivated'])
    const { status, json } = await gateway.admin('POST', `/v1/admin/agents/${bot.id}/reactivate`)
    t.strictSame([status, json.is_active], [200, true])
    t.equal(await chat(gateway, bot), 200)
  },
)
