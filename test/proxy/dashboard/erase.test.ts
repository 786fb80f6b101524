import t from 'tap'
import { ADMIN_CAPABILITIES } from '../../../plugins/operators/capabilities.ts'
import { buttonsIn, press } from '../../support/dashboard/pressing.ts'
import { signedInAs } from '../../support/dashboard/signed-in.ts'
import { proofSigner } from '../../support/dpop.ts'
import { corporateCa, trustDomain } from '../../support/foreign.ts'
import { CHAT, type Identity, type Json, testGateway } from '../../support/gateway.ts'
import { signedInBySecret } from '../../support/oidc/jar.ts'
import { operatorNamed } from '../../support/operators.ts'

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

const ROTATE = 'Rotate the certificate'

const graceIn = (page: string): string | undefined =>
  buttonsIn(page).find(({ label }) => label === ROTATE)?.fields.grace_hours

await t.test(
  'what takes access away says first which calls it would have refused, and of whom',
  async (t) => {
    const gateway = await testGateway(t)
    const jar = await signedInBySecret(gateway)
    const called = async (name: string): Promise<string> => {
      const who = await gateway.enroll(name, ['llm.chat'])
      for (let at = 0; at < 2; at += 1)
        await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })
      return `/proxy/agents/${encodeURIComponent(who.id)}`
    }
    const cases = {
      'agent.deactivated': ['Deactivate', {}],
      'agent.cert_rotated': [ROTATE, { grace_hours: '0' }],
      'agent.certificate_ended': ['End it now', {}],
      'agent.erased': [/^Erase/, { name: 'erased' }],
    } as const
    for (const [action, [label, fields]] of Object.entries(cases)) {
      const path = await called(action.replace('agent.', ''))
      const page = (await jar.ask('GET', action === 'agent.erased' ? `${path}/erase` : path)).text
      const shown = await press(jar, page, label, fields)
      t.match(shown.text, '2 calls would have been refused', action)
      t.match(shown.text, `× gpt-test of acme::${action.replace('agent.', '')} `, 'and of whom')
      t.same(await gateway.rows({ action }), [], 'nothing has changed')
      const done = await press(jar, shown.text, /2 calls of the last 30 days would be refused$/)
      t.ok(done.status === 303 || done.status === 200, `${action} ${done.text}`)
      t.equal((await gateway.rows({ action })).length, 1, action)
    }
    const unused = await gateway.enroll('unused', ['llm.chat'])
    const page = (await jar.ask('GET', `/proxy/agents/${unused.id}`)).text
    const { headers } = await press(jar, page, 'Deactivate')
    t.equal(headers.location, '/proxy/agents/acme%3A%3Aunused?notice=deactivated', 'without any, it is done')
  },
)

await t.test('an operator who may only enroll is asked too, and is not held up', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
  const enroller = await operatorNamed(gateway, 'enroller', ['admin.read', 'admin.enroll'])
  const jar = await signedInAs(gateway, enroller)
  const shown = await press(jar, (await jar.ask('GET', '/proxy/agents/acme::bot')).text, 'Deactivate')
  t.equal(shown.status, 200, shown.text)
  const done = await press(jar, shown.text, /^Deactivate: 1 call of/)
  t.match(done.headers.location, 'notice=deactivated')
})

await t.test(
  'in an incident, deactivate, rotate and take back leaves the thief nothing; in peace the old one has its grace',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const path = '/proxy/agents/acme%3A%3Abot'
    const jar = await signedInBySecret(gateway)
    const page = async () => (await jar.ask('GET', path)).text
    const chat = async (who: Identity) =>
      (await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })).status
    t.equal(graceIn(await page()), '', 'nothing is known to be wrong')
    const peaceful = await press(jar, await page(), ROTATE)
    t.match(peaceful.text, 'The previous certificate is accepted until')
    t.match((await jar.ask('GET', '/proxy/agents')).text, 'the one before until')
    t.match(await page(), 'accepted until')
    t.equal(await chat(bot), 200)

    await press(jar, await page(), 'Deactivate').then(({ text }) => press(jar, text, /^Deactivate: /))
    t.match(await page(), 'each of its certificates above counts again')
    t.equal(graceIn(await page()), '0', 'now is chosen')
    const rotated = await press(jar, await page(), ROTATE)
    t.match(rotated.text, 'No earlier certificate of it is accepted.')
    await press(jar, await page(), 'Reactivate')
    t.equal(await chat(bot), 401, 'the stolen one')
    const [key = '', cert = ''] = [...rotated.text.matchAll(/<pre class="copy[^>]*>([^<]+)</g)].map(
      ([, pem]) => pem ?? '',
    )
    t.equal(await chat({ ...bot, key, cert }), 200)
    t.equal(graceIn(await page()), '0', 'for a week after it was switched off')
    const eve = await gateway.enroll('eve', ['llm.chat'])
    const eves = (await jar.ask('GET', `/proxy/agents/${eve.id}`)).text
    t.equal(graceIn(eves), '', 'it is nobody else’s incident')
  },
)

await t.test('one click ends a certificate or a proof key that is in its grace', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const [first, next] = [proofSigner(), proofSigner()]
  const api = '/v1/admin/agents/acme::bot'
  for (const { jwk } of [first, next]) await gateway.admin('POST', `${api}/dpop-jwk`, jwk)
  await gateway.admin('POST', `${api}/rotate-cert`, {})
  const jar = await signedInBySecret(gateway)
  const path = '/proxy/agents/acme%3A%3Abot'
  for (const [fact, notice] of [
    ['Certificate before', 'certificate_ended'],
    ['Proof key before', 'key_ended'],
  ] as const) {
    const { text } = await jar.ask('GET', path)
    const { status, headers } = await press(jar, text.slice(text.indexOf(`<dt>${fact}</dt>`)), 'End it now')
    t.same([status, headers.location], [303, `${path}?notice=${notice}`], fact)
    t.notMatch((await jar.ask('GET', path)).text, fact)
  }
  t.equal((await gateway.call(bot, 'GET', '/v1/models')).status, 401)
})

await t.test(
  'what takes an operator or the secret out of service says first what that comes to',
  async (t) => {
    const gateway = await testGateway(t)
    const alice = await operatorNamed(gateway, 'alice', ADMIN_CAPABILITIES)
    const bob = await operatorNamed(gateway, 'bob', ADMIN_CAPABILITIES)
    await signedInAs(gateway, bob)
    const jar = await signedInBySecret(gateway)
    const { csrf } = (await jar.ask('GET', '/v1/admin/session')).json
    const { cert_thumbprint: thumbprint } = (await gateway.admin('GET', `/v1/admin/operators/${bob.id}`)).json
    const path = `/proxy/operators/${bob.id}`
    const end = `${path}/certificates/${thumbprint}/end`
    for (const [form, label, said, fields = {}] of [
      [end, 'End it now', /signed in with 1 browser[\s\S]*operators: alice/],
      [`${path}/rotate-cert`, 'Rotate the certificate', /operators: alice/, { grace_hours: '0' }],
      [`${path}/deactivate`, 'Deactivate', /operators: alice/],
      [`/proxy/operators/${alice.id}/deactivate`, 'Deactivate', /Nobody else could administer operators/],
      [`/proxy/operators/${alice.id}/reactivate`, '', /./],
      [
        '/proxy/settings/secret/disable',
        'Disable the secret',
        /1 browser signed in by it is[^:]*yours too[^:]*: alice/,
      ],
    ] as const) {
      const rows = (await gateway.rows()).length
      const shown = await jar.send(form, { csrf, ...fields })
      if (label === '') continue
      t.match(shown.text, said, form)
      t.equal((await gateway.rows()).length, rows, `${form} has changed nothing yet`)
      t.ok((await press(jar, shown.text, label)).status < 400, form)
      t.equal((await gateway.rows()).length, rows + 1, form)
    }
    t.equal((await gateway.admin('GET', '/v1/admin/agents')).status, 403)
  },
)

await t.test('every form whose operation takes a grace asks for it', async (t) => {
  const gateway = await testGateway(t)
  const { json } = await gateway.call(null, 'GET', '/openapi.json')
  const graced = new Set(
    Object.entries<Record<string, Json>>(json.paths).flatMap(([path, methods]) =>
      Object.values(methods).some((one) => JSON.stringify(one.requestBody ?? {}).includes('grace_hours'))
        ? [path.split('/').at(-1)]
        : [],
    ),
  )
  t.ok(graced.has('rotate-cert') && graced.has('trust-bundle'))
  const spire = await trustDomain()
  const { certPem, keyPem } = await spire.svid('spiffe://spire.test/pay')
  const body = { agent_name: 'pay', svid_pem: certPem, svid_key_pem: keyPem, trust_bundle_pem: spire.caPem }
  await gateway.admin('POST', '/v1/admin/agents/enroll/spiffe', body)
  const corporate = await corporateCa()
  const leaf = await corporate.leaf('own')
  await gateway.admin('POST', '/v1/admin/ca/attach', { ca_pem: corporate.caPem, kind: 'organisation' })
  const own = { agent_name: 'own', cert_pem: leaf.certPem, private_key_pem: leaf.keyPem }
  await gateway.admin('POST', '/v1/admin/agents/enroll/byoca', own)
  const jar = await signedInBySecret(gateway)
  let asked = 0
  for (const path of [
    '/proxy/agents/acme::pay',
    '/proxy/agents/acme::own',
    '/proxy/pki',
    '/proxy/settings',
  ]) {
    for (const form of (await jar.ask('GET', path)).text.match(/<form[\s\S]*?<\/form>/g) ?? []) {
      const [, last = ''] = /action="[^"]*\/([^"/]+)"/.exec(form) ?? []
      if (!graced.has(last)) continue
      asked += 1
      t.match(form, /name="grace_hours"/, form.slice(0, 120))
    }
  }
  t.ok(asked >= 4, `${asked} forms`)
})
