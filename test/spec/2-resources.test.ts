import { X509Certificate } from 'node:crypto'
import t from 'tap'
import { CHAT, testGateway } from '../support/gateway.ts'

await t.test('§2.1 the caller supplies the short name and the service adds its own prefix', async (t) => {
  const gateway = await testGateway(t, { settings: { MCP_PROXY_ORG: 'initech' } })
  const { status, json } = await gateway.admin('POST', '/v1/admin/agents', { agent_name: 'bot' })
  t.equal(status, 201)
  t.equal(json.agent_id, 'initech::bot')
  for (const agent_name of ['initech::bot', 'a b', '', 'x'.repeat(65), 'é', 7, null]) {
    const refused = await gateway.admin('POST', '/v1/admin/agents', { agent_name })
    t.equal(refused.status, 422, String(agent_name))
    t.equal(refused.json.detail.errors[0].field, 'agent_name')
  }
})

await t.test('§2.2 an operator-defined token is stored verbatim and enforced by nothing else', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['_my.own.token9', 'llm.chat'])
  const { json } = await gateway.admin('GET', `/v1/admin/agents/${bot.id}`)
  t.strictSame(json.capabilities, ['_my.own.token9', 'llm.chat'])
  const { status } = await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
  t.equal(status, 200)
})

await t.test('§2.3 llm.chat is matched exactly: nothing like it opens the door', async (t) => {
  const gateway = await testGateway(t)
  for (const [i, token] of ['llm', 'llm.chat.all', 'llm.cha', 'llm_chat', 'http.get', 'llm.'].entries()) {
    const who = await gateway.enroll(`bot-${i}`, [token])
    const { status } = await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })
    t.equal(status, 403, token)
  }
})

await t.test('§2.5 display_name and capabilities are optional; an unknown field is refused', async (t) => {
  const gateway = await testGateway(t)
  const { json } = await gateway.admin('POST', '/v1/admin/agents', { agent_name: 'plain' })
  t.strictSame([json.display_name, json.capabilities], [null, []])
  const refused = await gateway.admin('POST', '/v1/admin/agents', {
    agent_name: 'typo',
    capabilites: ['llm.chat'],
  })
  t.equal(refused.status, 422)
  t.equal(refused.json.detail.errors[0].field, 'capabilites')
  t.equal((await gateway.admin('GET', '/v1/admin/agents/acme::typo')).status, 404, 'nothing was made')
})

await t.test('§2.6 the certificate names the agent in its SAN, and its thumbprint is pinned', async (t) => {
  const gateway = await testGateway(t, { settings: { MCP_PROXY_TRUST_DOMAIN: 'example.test' } })
  const { json } = await gateway.admin('POST', '/v1/admin/agents', { agent_name: 'bot' })
  const leaf = new X509Certificate(json.cert_pem)
  t.equal(leaf.subjectAltName, 'URI:spiffe://example.test/acme/bot')
  t.match(leaf.subject, 'CN=acme::bot')
  const thumbprint = leaf.fingerprint256.replaceAll(':', '').toLowerCase()
  t.equal(json.cert_thumbprint, thumbprint)
  t.match(json.private_key_pem, /^-----BEGIN PRIVATE KEY-----/)
  t.ok(json.cert_chain_pem.startsWith(json.cert_pem), 'the chain is the leaf and then the intermediate')
  t.equal(json.cert_chain_pem.match(/BEGIN CERTIFICATE/g).length, 2)
  const again = await gateway.admin('GET', '/v1/admin/agents/acme::bot')
  t.notOk('private_key_pem' in again.json, 'the key is shown once')
})
