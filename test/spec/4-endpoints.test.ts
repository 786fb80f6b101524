import t from 'tap'
import { CHAT, sharedGateway, testGateway } from '../support/gateway.ts'

await t.test(
  '§4 admin endpoints require X-Admin-Secret; without it and with a wrong one the answer is the same',
  async (t) => {
    const gateway = await sharedGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const ask = async (headers: Record<string, string>) => {
      const { status, json } = await gateway.call(bot, 'GET', '/v1/admin/agents', { headers })
      const { request_id: _, detail, ...rest } = json
      return { status, rest, reason: detail.reason }
    }
    const missing = await ask({})
    t.strictSame([missing.status, missing.reason], [403, 'admin_secret_invalid'])
    t.strictSame(await ask({ 'x-admin-secret': 'wrong-wrong-wrong' }), missing)
    t.equal((await gateway.admin('GET', '/v1/admin/agents')).status, 200)
  },
)

await t.test('§4.1 GET /v1/admin/agents is a bare array, newest first, and pages', async (t) => {
  let at = Date.now()
  const gateway = await testGateway(t, { clock: () => (at += 1) })
  for (const name of ['one', 'two', 'three']) await gateway.enroll(name, ['llm.chat'])
  const { json } = await gateway.admin('GET', '/v1/admin/agents')
  t.strictSame(
    json.map((agent: { agent_id: string }) => agent.agent_id),
    ['acme::three', 'acme::two', 'acme::one'],
  )
  t.strictSame(json[0].capabilities, ['llm.chat'])
  const first = await gateway.admin('GET', '/v1/admin/agents?limit=2')
  t.equal(first.json.length, 2)
  const next = /<([^>]+)>; rel="next"/.exec(String(first.headers.link))?.[1] ?? ''
  const second = await gateway.admin('GET', next)
  t.strictSame(
    second.json.map((agent: { agent_id: string }) => agent.agent_id),
    ['acme::one'],
  )
  t.notOk(second.headers.link)
  t.equal((await gateway.admin('GET', '/v1/admin/agents?limit=0')).status, 422)
  t.equal((await gateway.admin('GET', '/v1/admin/agents?cursor=nonsense')).status, 422)
})

await t.test('§4.1 an id in the path is accepted raw and percent-encoded', async (t) => {
  const gateway = await testGateway(t)
  await gateway.enroll('bot', [])
  for (const id of ['acme::bot', 'acme%3A%3Abot']) {
    t.equal((await gateway.admin('GET', `/v1/admin/agents/${id}`)).json.agent_id, 'acme::bot', id)
  }
  for (const id of ['acme::nobody', 'bot', 'acme%253A%253Abot', '%', 'acme%2F%2Fbot']) {
    t.equal((await gateway.admin('GET', `/v1/admin/agents/${id}`)).status, 404, id)
  }
})

await t.test(
  '§4.1 a second agent of the same name is a 409, and two at once give one 201, one 409 and one key',
  async (t) => {
    const gateway = await sharedGateway(t)
    const make = () => gateway.admin('POST', '/v1/admin/agents', { agent_name: 'twin' })
    const statuses = (await Promise.all([make(), make()])).map(({ status }) => status)
    t.strictSame(
      statuses.toSorted((a, b) => a - b),
      [201, 409],
    )
    t.equal((await make()).status, 409)
    t.equal((await gateway.rows({ action: 'agent.created' })).length, 1)
  },
)

await t.test('§4.4 a PATCH replaces the whole set and is idempotent', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat', 'http.get'])
  const path = `/v1/admin/agents/${bot.id}/capabilities`
  for (const _ of [1, 2]) {
    const { status, json } = await gateway.admin('PATCH', path, { capabilities: ['mcp.tools.list'] })
    t.equal(status, 200)
    t.strictSame(json.capabilities, ['mcp.tools.list'])
  }
  for (const body of [
    {},
    { capabilities: 'llm.chat' },
    { capabilities: null },
    { capabilities: {} },
    { add: ['x'] },
  ]) {
    t.equal((await gateway.admin('PATCH', path, body)).status, 422, JSON.stringify(body))
  }
  t.equal(
    (await gateway.admin('PATCH', '/v1/admin/agents/acme::who/capabilities', { capabilities: [] })).status,
    404,
  )
})

await t.test(
  '§4.4 a replacement from a stale read is refused where If-Match says so (docs/protocol.md#if-match)',
  async (t) => {
    const gateway = await sharedGateway(t)
    const bot = await gateway.enroll('bot', [])
    const path = `/v1/admin/agents/${bot.id}/capabilities`
    const { headers } = await gateway.admin('GET', `/v1/admin/agents/${bot.id}`)
    const etag = String(headers.etag)
    const first = await gateway.admin('PATCH', path, { capabilities: ['llm.chat'] }, { 'if-match': etag })
    t.equal(first.status, 200)
    const stale = await gateway.admin('PATCH', path, { capabilities: [] }, { 'if-match': etag })
    t.strictSame([stale.status, stale.json.reason], [412, 'precondition_failed'])
    t.strictSame((await gateway.admin('GET', `/v1/admin/agents/${bot.id}`)).json.capabilities, ['llm.chat'])
    const fresh = await gateway.admin(
      'PATCH',
      path,
      { capabilities: [] },
      { 'if-match': String(first.headers.etag) },
    )
    t.equal(fresh.status, 200)
  },
)

await t.test('§4.4 of many replacements at once without If-Match each is applied whole', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot', [])
  const path = `/v1/admin/agents/${bot.id}/capabilities`
  const sets = ['a', 'b', 'c', 'd'].map((token) => [token])
  const answers = await Promise.all(
    sets.map((capabilities) => gateway.admin('PATCH', path, { capabilities })),
  )
  t.strictSame(
    answers.map(({ status }) => status),
    [200, 200, 200, 200],
  )
  const listed = await gateway.rows({ action: 'agent.capabilities_patched', order: 'asc' })
  // The list goes by the time of arrival; who came first need not have been served first.
  const rows = listed.toSorted((a, b) => a.seq - b.seq)
  t.equal(rows.length, 4)
  for (const [i, { detail }] of rows.entries()) {
    t.strictSame(
      detail.previous,
      rows[i - 1]?.detail.capabilities ?? [],
      'each row follows on the one before',
    )
  }
})

await t.test(
  'docs/protocol.md#rotation a rotated certificate works at once, and the previous one for its grace',
  async (t) => {
    let at = Date.now()
    const gateway = await testGateway(t, { clock: () => at })
    const old = await gateway.enroll('bot', ['llm.chat'])
    const { status, json } = await gateway.admin('POST', `/v1/admin/agents/${old.id}/rotate-cert`, {
      grace_hours: 2,
    })
    t.equal(status, 200)
    t.equal(Date.parse(json.previous_valid_until), at + 2 * 3_600_000)
    const fresh = { id: old.id, cert: json.cert_chain_pem, key: json.private_key_pem }
    const chat = async (who: typeof old) =>
      (await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })).status
    t.strictSame([await chat(fresh), await chat(old)], [200, 200])
    const [inGrace] = await gateway.rows({ action: 'egress_llm_chat', status: 'allowed' })
    t.equal(inGrace?.detail.certificate, 'previous', 'its use is in the ledger')
    at += 2 * 3_600_000
    t.strictSame([await chat(fresh), await chat(old)], [200, 401])
    const again = await gateway.admin('POST', `/v1/admin/agents/${old.id}/rotate-cert`, { grace_hours: 0 })
    t.equal(again.json.previous_valid_until, null)
    t.equal(await chat(fresh), 401, 'no grace: ended at once')
    t.equal(
      (await gateway.admin('POST', `/v1/admin/agents/${old.id}/rotate-cert`)).status,
      200,
      'a body is optional',
    )
  },
)

await t.test('§4.3 each LLM endpoint reaches its own path at the provider', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const doors = {
    '/v1/chat/completions': '/v1/chat/completions',
    '/v1/llm/chat': '/v1/chat/completions',
    '/v1/responses': '/v1/responses',
    '/v1/embeddings': '/v1/embeddings',
    '/v1/completions': '/v1/completions',
    '/v1/responses/input_tokens': '/v1/responses/input_tokens',
    '/v1/responses/compact': '/v1/responses/compact',
    '/v1/moderations': '/v1/moderations',
    '/v1/images/generations': '/v1/images/generations',
    '/v1/messages?beta=true&key=k': '/v1/messages?beta=true',
    '/v1/messages/count_tokens?beta=true': '/v1/messages/count_tokens?beta=true',
  }
  for (const [path, upstream] of Object.entries(doors)) {
    const model = upstream.startsWith('/v1/messages') ? 'claude-test' : 'gpt-test'
    const { status } = await gateway.call(bot, 'POST', path, { body: { ...CHAT, model } })
    t.equal(status, 200, path)
    t.equal(gateway.upstream.seen.at(-1)?.url, upstream, path)
  }
})
