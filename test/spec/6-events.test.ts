import { join } from 'node:path'
import SQLite from 'better-sqlite3'
import t from 'tap'
import { CHAT, testGateway } from '../support/gateway.ts'

await t.test('§6 every grant emits exactly one row, with the full new list', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const path = `/v1/admin/agents/${bot.id}/capabilities`
  await gateway.admin('PATCH', path, { capabilities: ['http.get', 'llm.chat'] })
  const rows = (await gateway.rows()).filter(({ action }) => action.startsWith('agent.'))
  t.strictSame(
    rows.map(({ action }) => action),
    ['agent.created', 'agent.capabilities_patched'],
  )
  t.match(rows[1], { principal_id: 'admin', status: 'success', detail: { subject: bot.id } })
  t.strictSame(rows[1]?.detail.capabilities, ['http.get', 'llm.chat'])
  t.strictSame(rows[1]?.detail.previous, ['llm.chat'])
})

await t.test('§6 a denied call is one row with status denied', async (t) => {
  const gateway = await testGateway(t)
  const nobody = await gateway.enroll('nobody', [])
  await gateway.call(nobody, 'POST', '/v1/messages', { body: CHAT })
  const rows = await gateway.rows({ action: 'egress_llm_chat' })
  t.strictSame(
    rows.map(({ status }) => status),
    ['denied'],
  )
})

await t.test('§6 the database prevents editing and deleting a row afterwards', async (t) => {
  const gateway = await testGateway(t)
  await gateway.enroll('bot', [])
  const db = new SQLite(join(gateway.settings.dataDir, 'sallyport.db'))
  t.teardown(() => db.close())
  t.throws(() => db.exec("update audit_rows set status = 'allowed' where seq = 1"))
  t.throws(() => db.exec('delete from audit_rows where seq = 1'))
  t.throws(() => db.exec('insert or replace into audit_rows select * from audit_rows where seq = 1'))
})

await t.test('§6 the chain is verified and exported by the admin API', async (t) => {
  const gateway = await testGateway(t)
  await gateway.enroll('bot', [])
  const { json } = await gateway.admin('POST', '/v1/admin/audit/verify')
  t.match(json, { ok: true, rows: 3 })
  const { text } = await gateway.admin('GET', '/v1/admin/audit/export')
  t.strictSame(
    text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line).action),
    ['service.started', 'config.loaded', 'agent.created'],
  )
  const page = await gateway.admin('GET', '/v1/admin/audit?action=agent.created&limit=1')
  t.strictSame([page.json.rows.length, page.json.next_cursor], [1, null])
  t.equal((await gateway.admin('GET', '/v1/admin/audit?limit=x')).status, 422)
  t.equal(
    (await gateway.admin('GET', '/v1/admin/audit?acton=x')).status,
    422,
    'a typo does not show everything',
  )
})

await t.test('docs/ledger.md strangers do not grow the chain: one row per reason', async (t) => {
  const gateway = await testGateway(t)
  for (const _ of Array(20)) await gateway.call(null, 'POST', '/v1/chat/completions', { body: CHAT })
  t.equal((await gateway.rows({ action: 'auth.refused' })).length, 0)
  await gateway.close(0)
  const rows = await gateway.rows({ action: 'auth.refused' })
  t.equal(rows.length, 1)
  t.match(rows[0]?.detail, { reason: 'certificate_required', count: 20 })
})
