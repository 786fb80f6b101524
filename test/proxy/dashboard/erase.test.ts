import t from 'tap'
import { buttonsIn, press } from '../../support/dashboard/pressing.ts'
import { testGateway } from '../../support/gateway.ts'
import { signedInBySecret } from '../../support/oidc/jar.ts'

await t.test(
  'an erasure says what it destroys and what stays, asks for the name, and is one row; another name erases nobody',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    await gateway.admin('POST', '/v1/admin/users', { user_name: 'ada', display_name: 'Ada Lovelace' })
    await gateway.admin('POST', '/v1/admin/workloads', { workload_name: 'nightly' })
    const jar = await signedInBySecret(gateway)
    for (const [plural, type, id, name] of [
      ['users', 'user', 'acme::user::ada', 'ada'],
      ['agents', 'agent', 'acme::bot', 'bot'],
      ['workloads', 'workload', 'acme::workload::nightly', 'nightly'],
    ] as const) {
      const path = `/proxy/${plural}/${encodeURIComponent(id)}`
      t.match((await jar.ask('GET', path)).text, `href="${path}/erase"`)
      const { text } = await jar.ask('GET', `${path}/erase`)
      for (const says of ['What is destroyed, for good', 'What stays', 'the key of its commitments'])
        t.match(text, says, plural)
      const wrong = await press(jar, text, `Erase ${name} for good`, { name: 'somebody' })
      t.equal(wrong.status, 422)
      t.match(wrong.text, 'value="somebody"', 'what was typed is kept')
      t.same(await gateway.rows({ action: `${type}.erased` }), [])
      const done = await press(jar, wrong.text, `Erase ${name} for good`, { name })
      t.equal(done.headers.location, `/proxy/${plural}?notice=erased`, done.text)
      t.equal((await gateway.rows({ action: `${type}.erased` })).length, 1)
      const { status, json } = await gateway.admin('GET', `/v1/admin/${plural}/${id}`)
      t.same(
        plural === 'users' ? status : [status, json.is_active, json.capabilities],
        plural === 'users' ? 404 : [200, false, []],
      )
    }
    t.equal((await gateway.call(bot, 'GET', '/v1/models')).status, 401)
    t.equal((await jar.ask('GET', '/proxy/users/acme::user::ada/erase')).status, 404)
  },
)

await t.test(
  'a principal that was changed since it was looked at is not erased, and what is expected asks why',
  async (t) => {
    const files = { '90-expect.yaml': 'plugin: expect\nexpect: ["acme::bot may use model gpt-4o-mini"]\n' }
    const gateway = await testGateway(t, { files })
    await gateway.enroll('bot', ['llm.chat'])
    const jar = await signedInBySecret(gateway)
    const { text } = await jar.ask('GET', '/proxy/agents/acme::bot/erase')
    await gateway.admin('PATCH', '/v1/admin/agents/acme::bot/capabilities', {
      capabilities: ['llm.chat', 'a.b'],
    })
    const broken = await press(jar, text, /^Erase/, { name: 'bot' })
    t.equal(broken.status, 409)
    const stale = await press(jar, broken.text, /^Erase/, { name: 'bot', force_reason: 'it is gone' })
    t.equal(stale.status, 412)
    t.same(await gateway.rows({ action: 'agent.erased' }), [])
    t.match(stale.text, 'name="name"')
    const again = (await jar.ask('GET', '/proxy/agents/acme::bot/erase')).text
    t.notMatch(again, 'force_reason')
    const asked = await press(jar, again, /^Erase/, { name: 'bot' })
    t.notMatch(asked.text, 'force=true', 'the form speaks of itself, not of the API')
    t.match(asked.text, 'acme::bot may use model gpt-4o-mini')
    t.equal((await press(jar, asked.text, /^Erase/, { name: 'bot', force_reason: 'it is gone' })).status, 303)
    t.match((await gateway.rows({ action: 'agent.erased' }))[0]?.detail, { forced: { reason: 'it is gone' } })
    t.ok(buttonsIn(text).length > 0)
  },
)
