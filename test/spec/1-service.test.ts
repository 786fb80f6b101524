import t from 'tap'
import { CHAT, testGateway } from '../support/gateway.ts'

await t.test('§1 a caller without a client certificate is refused before anything else', async (t) => {
  const gateway = await testGateway(t)
  const { status, json, headers } = await gateway.call(null, 'POST', '/v1/chat/completions', { body: CHAT })
  t.equal(status, 401)
  t.equal(json.reason, 'certificate_required')
  t.match(headers['www-authenticate'], /^DPoP /)
  t.equal(headers['x-should-retry'], 'false')
  t.equal(gateway.upstream.seen.length, 0)
})

await t.test('§1 the capability check runs after authentication and before any dispatch', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['mcp.tools.list'])
  const { status } = await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
  t.equal(status, 403)
  t.equal(gateway.upstream.seen.length, 0)
})

await t.test('§1 a principal with an empty set is denied on every gated endpoint', async (t) => {
  const gateway = await testGateway(t)
  const nobody = await gateway.enroll('nobody', [])
  const gated = [
    '/v1/chat/completions', '/v1/llm/chat', '/v1/messages', '/v1/v1/messages', '/v1/messages/count_tokens',
    '/v1/responses', '/v1/responses/input_tokens', '/v1/responses/compact', '/v1/embeddings', '/v1/completions',
    '/v1/moderations', '/v1/images/generations',
  ] // biome-ignore format: a list of doors
  for (const path of gated) {
    const { status } = await gateway.call(nobody, 'POST', path, { body: CHAT })
    t.equal(status, 403, path)
  }
  t.equal(gateway.upstream.seen.length, 0)
})

await t.test('§1 every decision is recorded before the work begins, and its outcome after', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  gateway.upstream.answer = async (res) => {
    const [decision] = await gateway.rows({ action: 'egress_llm_chat' })
    res.setHeader('content-type', 'application/json')
    res.end(JSON.stringify({ seen: decision?.status, usage: { prompt_tokens: 7, completion_tokens: 3 } }))
  }
  const answered = await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
  t.equal(answered.json.seen, 'allowed', 'the provider was reached only after the row was durable')
  await gateway.close(0)
  const rows = await gateway.rows({ action: 'egress_llm_chat', order: 'asc' })
  t.strictSame(
    rows.map(({ status }) => status),
    ['allowed', 'success'],
  )
  const [decision, outcome] = rows
  t.equal(outcome?.request_id, decision?.request_id)
  t.equal(decision?.request_id, answered.headers['x-request-id'])
  t.match(decision, { principal_id: 'acme::bot', principal_type: 'agent', model: 'gpt-test' })
  t.match(outcome, { provider: 'openai', detail: { http_status: 200, tokens: { input: 7, output: 3 } } })
  t.match(
    answered.headers['audit-receipt'],
    `stream=${decision?.stream}, seq=${decision?.seq}, hash=${decision?.row_hash}`,
  )
})

await t.test('§1 prompts and completions are in no row', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const body = { model: 'gpt-test', messages: [{ role: 'user', content: 'a-very-private-prompt' }] }
  await gateway.call(bot, 'POST', '/v1/chat/completions', { body })
  await gateway.close(0)
  t.notMatch(JSON.stringify(await gateway.rows()), /a-very-private-prompt|hello/)
})

await t.test('§1 the outcome of a call that the provider failed says so, with its provider', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  gateway.upstream.answer = (res) => void res.writeHead(500).end('secret internals')
  const { status, text } = await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
  t.equal(status, 502)
  t.notMatch(text, 'secret internals')
  await gateway.close(0)
  const [outcome] = await gateway.rows({ action: 'egress_llm_chat', status: 'error' })
  t.match(outcome, {
    provider: 'openai',
    detail: {
      reason: 'provider_failed',
      upstream_status: 500,
      attempts: [{ provider: 'openai', status: 500, reason: 'provider_failed' }],
    },
  })
})
