import SQLite from 'better-sqlite3'
import t from 'tap'
import { skipWithoutFile } from '../../support/db/engine.ts'
import { ADMIN_SECRET, agentOf, ask, CHAT, testGateway } from '../../support/gateway.ts'

await t.test(
  'docs/protocol.md#health health and readiness answer anyone, under their usual names',
  async (t) => {
    const gateway = await testGateway(t)
    for (const path of ['/health', '/healthz', '/health/liveness', '/health/liveliness']) {
      t.strictSame((await gateway.call(null, 'GET', path)).json, { status: 'ok' }, path)
    }
    const checks = { database: 'ok', audit: 'ok', ca: 'ok', plugins: 'ok', providers: 'ok' }
    for (const path of ['/ready', '/readyz', '/health/readiness']) {
      const { status, json } = await gateway.call(null, 'GET', path)
      t.strictSame([status, json], [200, { status: 'ready', checks }], path)
    }
  },
)

await t.test(
  'docs/protocol.md#health a ledger that cannot be written makes it not ready, until it can again',
  { skip: skipWithoutFile },
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const blocker = new SQLite(gateway.settings.databaseUrl.slice('sqlite:'.length))
    blocker.exec('begin immediate')
    const refused = await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
    t.strictSame([refused.status, refused.json.reason], [503, 'audit_unavailable'])
    const { status, json } = await gateway.call(null, 'GET', '/ready')
    t.strictSame([status, json.checks.audit], [503, 'failed'])
    blocker.exec('rollback')
    blocker.close()
    t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
    t.equal((await gateway.call(null, 'GET', '/ready')).status, 200)
    t.equal(gateway.upstream.seen.length, 1, 'the refused call was not dispatched')
  },
)

await t.test('docs/protocol.md#health /metrics is for operators, and counts', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
  await gateway.call(null, 'POST', '/v1/chat/completions', { body: CHAT })
  t.equal((await gateway.call(bot, 'GET', '/metrics')).status, 403)
  const { text } = await gateway.admin('GET', '/metrics')
  t.match(text, 'sallyport_requests_total{route="/v1/chat/completions",method="POST",status="200"} 1')
  t.match(text, 'sallyport_refusals_total{reason="certificate_required"} 1')
  t.match(text, 'sallyport_tokens_total{provider="openai",direction="input"} 7')
})

await t.test('who holds the token for metrics reads them and nothing else', async (t) => {
  const token = 'metrics-token-of-24-and-more'
  const gateway = await testGateway(t, { settings: { MCP_PROXY_METRICS_TOKEN: token } })
  const asked = async (path: string, authorization: string) => {
    const { status, json } = await gateway.call(null, 'GET', path, { headers: { authorization } })
    return [status, json?.reason]
  }
  t.same(await asked('/metrics', `Bearer ${token}`), [200, undefined])
  t.same(
    await asked('/metrics', `bearer ${token}`),
    [200, undefined],
    'the scheme in any case (RFC 9110 §11.1)',
  )
  for (const wrong of [`Bearer ${token}x`, `Bearer ${token.slice(1)}`, 'Bearer ', `Basic ${token}`, token]) {
    t.same(await asked('/metrics', wrong), [403, 'admin_secret_invalid'], wrong)
  }
  for (const path of ['/v1/admin/agents', '/v1/admin/audit', '/v1/models']) {
    t.match((await asked(path, `Bearer ${token}`))[0], /40[13]/, path)
  }
  t.equal((await gateway.admin('GET', '/metrics')).status, 200, 'an operator still does')

  const without = await testGateway(t)
  for (const guess of ['', 'null', 'undefined', token]) {
    const answer = await without.call(null, 'GET', '/metrics', {
      headers: { authorization: `Bearer ${guess}` },
    })
    t.equal(answer.status, 403, 'where none is set, none holds')
  }
})

await t.test(
  'docs/protocol.md#common every answer carries its request id and the security headers; the log has one line with it',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const headers = { 'x-request-id': 'mine-1' }
    const answers = [
      await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT, headers }),
      await gateway.call(null, 'GET', '/nowhere', { headers }),
      await gateway.call(null, 'GET', '/health', { headers }),
      await gateway.call(bot, 'POST', '/v1/messages', { body: '{', headers }),
    ]
    // A line is written after the caller has its answer.
    await gateway.close(0)
    for (const { status, headers: sent } of answers) {
      t.match(sent['x-request-id'], /^req_[0-9a-f]{32}$/, String(status))
      t.equal(sent['request-id'], sent['x-request-id'])
      t.match(sent, {
        'cache-control': 'no-store',
        'x-content-type-options': 'nosniff',
        'strict-transport-security': /max-age=\d+/,
      })
      t.notOk(sent['set-cookie'])
      const lines = gateway.log.filter(({ reqId }) => reqId === sent['x-request-id'])
      t.equal(lines.length, 1)
      t.match(lines[0], { status, client_request_id: 'mine-1' })
    }
  },
)

await t.test('docs/protocol.md#common administration can have a listener of its own', async (t) => {
  const gateway = await testGateway(t, { settings: { MCP_PROXY_ADMIN_LISTEN: '127.0.0.1:0' } })
  t.not(gateway.adminUrl, gateway.url)
  t.equal((await gateway.admin('GET', '/v1/admin/agents')).status, 404, 'not on the runtime listener')
  t.equal((await gateway.admin('GET', '/metrics')).status, 404)
  const agent = agentOf(gateway.ca, null)
  const headers = { 'x-admin-secret': ADMIN_SECRET }
  const there = async (path: string) => (await ask(gateway.adminUrl + path, 'GET', { agent, headers })).status
  t.strictSame(
    [await there('/v1/admin/agents'), await there('/metrics'), await there('/ready')],
    [200, 200, 200],
  )
  t.equal(await there('/v1/models'), 404, 'and the runtime is not on the admin listener')
})
