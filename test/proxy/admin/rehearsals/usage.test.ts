import t from 'tap'
import { CHAT, type Identity, type TestGateway, testGateway } from '../../../support/gateway.ts'

const call = (gateway: TestGateway, who: Identity, path = '/v1/chat/completions', body: object = CHAT) =>
  gateway.call(who, 'POST', path, { body })
const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' }

await t.test(
  '§9 usage: what was used, what was held in vain, what was missing, and the least set',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat', 'x', 'y'])
    for (let round = 0; round < 3; round += 1) await call(gateway, bot)
    await call(gateway, bot, '/v1/mcp', list)
    const { status, json, text } = await gateway.admin('GET', `/v1/admin/agents/${bot.id}/usage`)
    t.equal(status, 200, text)
    t.match(json, { decisions: 4, unused: ['x', 'y'], missing: ['mcp.tools.list'], suggested: ['llm.chat'] })
    t.match(
      json.capabilities.find(({ capability }: { capability: string }) => capability === 'llm.chat'),
      {
        held: true,
        allowed: 3,
        denied: 0,
        last_allowed_at: /Z$/,
        last_denied_at: null,
        models: [CHAT.model],
      },
    )
    t.match(
      json.capabilities.find(({ capability }: { capability: string }) => capability === 'mcp.tools.list'),
      { held: false, allowed: 0, denied: 1, last_denied_at: /Z$/, models: [] },
    )
    t.match(
      json.capabilities.find(({ capability }: { capability: string }) => capability === 'x'),
      { held: true, allowed: 0, denied: 0, last_allowed_at: null },
    )
    const rehearsed = await gateway.admin('POST', '/v1/admin/rehearsals', {
      changes: [{ principal: bot.id, capabilities: json.suggested }],
    })
    t.equal(rehearsed.json.totals.newly_refused, 0, 'the suggested set refuses nothing that was allowed')
  },
)

await t.test('who has called nothing, or is not there, or a time that is none', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const path = `/v1/admin/agents/${bot.id}/usage`
  t.match((await gateway.admin('GET', path)).json, { decisions: 0, unused: ['llm.chat'], suggested: [] })
  t.equal((await gateway.admin('GET', '/v1/admin/agents/acme::nobody/usage')).status, 404)
  t.equal((await gateway.admin('GET', `/v1/admin/users/${bot.id}/usage`)).status, 404)
  t.equal((await gateway.admin('GET', `${path}?since=yesterday`)).status, 422)
  t.equal((await gateway.admin('GET', `${path}?since=2999-01-01T00:00:00Z`)).status, 422)
  await call(gateway, bot)
  const later = new Date(Date.now() - 3_600_000).toISOString()
  t.match((await gateway.admin('GET', `${path}?since=${later}`)).json, {
    decisions: 1,
    suggested: ['llm.chat'],
  })
})

await t.test('a user is asked for by its readable id, whatever the ledger calls it', async (t) => {
  const gateway = await testGateway(t)
  const made = await gateway.admin('POST', '/v1/admin/users', {
    user_name: 'ada',
    capabilities: ['llm.chat', 'x'],
  })
  const minted = await gateway.admin('POST', `/v1/admin/users/${made.json.principal_id}/rotate-cert`, {})
  const ada = {
    id: made.json.principal_id,
    cert: minted.json.cert_chain_pem,
    key: minted.json.private_key_pem,
  }
  t.equal((await call(gateway, ada)).status, 200)
  const { json } = await gateway.admin('GET', `/v1/admin/users/${ada.id}/usage`)
  t.match(json, { decisions: 1, unused: ['x'], suggested: ['llm.chat'] })
  const rehearsed = await gateway.admin('POST', '/v1/admin/rehearsals', {
    changes: [{ principal: ada.id, capabilities: [] }],
  })
  t.match(rehearsed.json.newly_refused, [{ principal_id: ada.id, principal_ref: /^usr_/, decisions: 1 }])
})
