import { randomBytes } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import SQLite from 'better-sqlite3'
import t from 'tap'
import { certifiedUser } from '../../../support/certs/certified.ts'
import { skipWithoutFile } from '../../../support/db/engine.ts'
import { CHAT, testGateway } from '../../../support/gateway.ts'

const CHAT_PATH = '/v1/chat/completions'

/** The names of the files of a directory, below it too, that hold one of the texts. */
function holding(directory: string, texts: readonly (string | Buffer)[]): readonly string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((path) => {
      const bytes = readFileSync(path)
      return texts.some((text) => bytes.includes(text))
    })
}

await t.test('an erased user is gone from every file, and every proof holds as before', async (t) => {
  const gateway = await testGateway(t)
  const name = `zoe-${randomBytes(6).toString('hex')}`
  const display = `Zoe ${randomBytes(6).toString('hex')}`
  const { who, ref } = await certifiedUser(t, gateway, { user_name: name, display_name: display })
  t.match(ref, /^usr_[a-z2-7]{26}$/)
  const path = `/v1/admin/users/${who.id}`
  const called = await gateway.call(who, 'POST', CHAT_PATH, { body: CHAT })
  t.equal(called.status, 200)
  const before = await gateway.rows()
  t.notOk(
    before.some((row) => JSON.stringify({ ...row, principal_name: '', subject_name: '' }).includes(name)),
    'no leaf names the user',
  )
  const { json: audit } = await gateway.admin('GET', `/v1/admin/audit?principal=${who.id}`)
  t.equal(audit.rows.length, 2, 'the API finds the user by its readable id')
  t.match(audit.rows, [{ principal_id: ref, principal_name: who.id }, { principal_name: who.id }])

  t.equal((await gateway.admin('POST', `${path}/erase`, undefined, { 'if-match': '"99"' })).status, 412)
  t.equal((await gateway.admin('POST', `${path}/erase`)).status, 204)
  t.equal((await gateway.admin('GET', path)).status, 404)
  t.equal((await gateway.admin('POST', `${path}/erase`)).status, 404)
  t.equal((await gateway.call(who, 'POST', CHAT_PATH, { body: CHAT })).status, 401)
  const [erased] = await gateway.rows({ action: 'user.erased' })
  t.match(erased?.detail, {
    subject: ref,
    revision: 3,
    capabilities: [],
    is_active: false,
    thumbprints: [],
    dpop_jkts: [],
  })
  const { json: later } = await gateway.admin('GET', `/v1/admin/audit?principal=${ref}`)
  t.equal(later.rows.length, 2, 'the pseudonym leads to the same rows')
  t.notOk('principal_name' in later.rows[0])
  const { text } = await gateway.admin('GET', '/v1/admin/audit/export')
  t.notMatch(text, name)

  const again = await gateway.admin('POST', '/v1/admin/users', { user_name: `other-${name.slice(4)}` })
  t.not(again.json.principal_ref, ref)
  await gateway.close(0)
  const base64 = who.cert.split('\n')[3] ?? ''
  const sealed = Buffer.from(name)
  t.same(
    holding(gateway.settings.dataDir, [sealed, display, base64]),
    [],
    'no file has the name or the certificate',
  )
})

await t.test(
  'the key of an erased principal is gone, so that nobody can search for what it sent',
  { skip: skipWithoutFile },
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const called = await gateway.call(bot, 'POST', CHAT_PATH, { body: CHAT })
    const id = String(called.headers['x-request-id'])
    const salts = async () =>
      (await gateway.admin('GET', `/v1/admin/audit?request_id=${id}&status=allowed`)).json.rows[0].salts
    t.match(await salts(), { body_sha256: /^[0-9a-f]{32}$/ })
    const file = join(gateway.settings.dataDir, 'sallyport.db')
    const connection = new SQLite(file, { readonly: true })
    const { sealed_key: sealed } = connection
      .prepare<[string], { sealed_key: string }>(
        'select sealed_key from subject_keys where principal_ref = ?',
      )
      .get(bot.id) ?? { sealed_key: '' }
    connection.close()
    t.ok(sealed)

    t.equal((await gateway.admin('POST', `/v1/admin/agents/${bot.id}/erase`)).status, 204)
    t.same(await salts(), {})
    const { json } = await gateway.admin('GET', `/v1/admin/agents/${bot.id}`)
    t.match(json, {
      agent_id: bot.id,
      agent_name: 'bot',
      is_active: false,
      capabilities: [],
      cert_thumbprint: null,
    })
    t.equal((await gateway.call(bot, 'POST', CHAT_PATH, { body: CHAT })).status, 401)

    const anew = await gateway.enroll('bot', ['llm.chat'])
    t.equal(
      (await gateway.call(anew, 'POST', CHAT_PATH, { body: CHAT })).status,
      200,
      'the name may be taken anew',
    )
    const [row] = await gateway.rows({ action: 'agent.created', order: 'desc', limit: 1 })
    t.match(row?.detail, { subject: bot.id, revision: 3, again: true }, 'and its revisions go on')
    await gateway.close(0)
    t.same(holding(gateway.settings.dataDir, [sealed]), [])
  },
)

await t.test('what is not there cannot be erased', async (t) => {
  const gateway = await testGateway(t)
  for (const path of ['users/acme::user::nobody', 'agents/acme::nobody', 'workloads/acme::workload::nobody'])
    t.equal((await gateway.admin('POST', `/v1/admin/${path}/erase`)).status, 404, path)
})
