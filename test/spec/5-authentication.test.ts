import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { skipWithoutFile } from '../support/db/engine.ts'
import { ADMIN_SECRET, agentOf, CHAT, testGateway } from '../support/gateway.ts'

await t.test('§5.1 the environment variable is consulted only while the stored hash is empty', async (t) => {
  const gateway = await testGateway(t)
  const list = async (secret: string) =>
    (await gateway.call(null, 'GET', '/v1/admin/agents', { headers: { 'x-admin-secret': secret } })).status
  t.equal(await list(ADMIN_SECRET), 200)
  const rotated = await gateway.admin('POST', '/v1/admin/secret/rotate', {
    new_secret: 'another-secret-of-mine',
  })
  t.equal(rotated.status, 204)
  t.equal(await list(ADMIN_SECRET), 403)
  t.equal(await list('another-secret-of-mine'), 200)
  // Read only now: closing the file would drop SQLite's locks in this process.
  await gateway.close(0)
  if (skipWithoutFile) return
  const bytes = await readFile(join(gateway.settings.dataDir, 'sallyport.db'), 'latin1')
  t.notMatch(bytes, 'another-secret-of-mine')
})

await t.test('§5.1 a secret outside 12 to 72 bytes is refused 422, never cut short', async (t) => {
  const gateway = await testGateway(t)
  for (const new_secret of ['x'.repeat(11), 'x'.repeat(73), 'with a space inside', 'naïve-naïve-naïve', 7]) {
    const { status, json } = await gateway.admin('POST', '/v1/admin/secret/rotate', { new_secret })
    t.equal(status, 422, String(new_secret))
    t.equal(json.detail.errors[0].field, 'new_secret')
  }
  t.equal((await gateway.admin('GET', '/v1/admin/agents')).status, 200, 'the old one still holds')
})

await t.test('§5.2 a certificate that is not pinned is refused 401', async (t) => {
  const gateway = await testGateway(t)
  const other = await testGateway(t)
  const stranger = await other.enroll('bot', ['llm.chat'])
  await gateway.enroll('bot', ['llm.chat'])
  const { status, json, headers } = await gateway.call(stranger, 'POST', '/v1/chat/completions', {
    body: CHAT,
  })
  t.strictSame([status, json.reason], [401, 'certificate_not_pinned'])
  t.match(headers['www-authenticate'], 'error="invalid_token"')
  t.equal(headers.connection, 'close')
})

await t.test('§5.2 exactly the pinned certificate authenticates as the matching agent', async (t) => {
  const gateway = await testGateway(t)
  const alice = await gateway.enroll('alice', ['llm.chat'])
  const bob = await gateway.enroll('bob', ['llm.chat'])
  for (const who of [alice, bob, alice])
    await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })
  const rows = await gateway.rows({ action: 'egress_llm_chat', status: 'allowed', order: 'asc' })
  t.strictSame(
    rows.map(({ principal_id: id }) => id),
    ['acme::alice', 'acme::bob', 'acme::alice'],
  )
})

await t.test('§5.2 one connection serves many requests, and each is decided anew', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const agent = agentOf(gateway.ca, bot, true)
  t.teardown(() => agent.destroy())
  const chat = async () =>
    (await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT, agent })).status
  t.equal(await chat(), 200)
  await gateway.admin('PATCH', `/v1/admin/agents/${bot.id}/capabilities`, { capabilities: [] })
  t.equal(await chat(), 403)
})

await t.test(
  '§5.2 egress_dpop_mode: required refuses mutual TLS alone, off and optional let it pass',
  async (t) => {
    const expected = { off: 200, optional: 200, required: 401 }
    for (const [mode, status] of Object.entries(expected)) {
      const gateway = await testGateway(t, { settings: { MCP_PROXY_EGRESS_DPOP_MODE: mode } })
      const bot = await gateway.enroll('bot', ['llm.chat'])
      t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, status, mode)
    }
  },
)

await t.test(
  '§5.2 a proof that cannot be verified is never believed: optional refuses it, off does not look',
  async (t) => {
    for (const [mode, status] of Object.entries({ off: 200, optional: 401 })) {
      const gateway = await testGateway(t, { settings: { MCP_PROXY_EGRESS_DPOP_MODE: mode } })
      const bot = await gateway.enroll('bot', ['llm.chat'])
      const answered = await gateway.call(bot, 'POST', '/v1/chat/completions', {
        body: CHAT,
        headers: { dpop: 'a.b.c' },
      })
      t.equal(answered.status, status, mode)
    }
  },
)

await t.test('§5.2 clients verify the service against the organisation CA, exported at /pki', async (t) => {
  const gateway = await testGateway(t)
  const root = await gateway.call(null, 'GET', '/pki/ca.crt')
  t.equal(root.text, await readFile(join(gateway.settings.dataDir, 'org-ca.crt'), 'utf8'))
  const cached = await gateway.call(null, 'GET', '/pki/ca.crt', {
    headers: { 'if-none-match': String(root.headers.etag) },
  })
  t.equal(cached.status, 304)
  const chain = await gateway.call(null, 'GET', '/pki/ca-chain.pem')
  t.equal(chain.text.match(/BEGIN CERTIFICATE/g)?.length, 2)
})
