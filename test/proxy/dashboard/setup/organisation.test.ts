import { X509Certificate } from 'node:crypto'
import { PassThrough } from 'node:stream'
import t from 'tap'
import { uriNamesOf } from '../../../../certs/enrollment/spiffe-id.ts'
import { startGateway } from '../../../../proxy/wiring/gateway.ts'
import { madeAuthority } from '../../../support/certs/made.ts'
import { ADMIN_SECRET, agentOf, ask, CHAT, type TestGateway, testGateway } from '../../../support/gateway.ts'
import { Jar } from '../../../support/oidc/jar.ts'
import {
  atOrganisation,
  caOf,
  csrfOf,
  ORGANISATION,
  onOneConnection,
  trusting,
  UNSET,
} from '../../../support/wizard.ts'

const INITECH = { org: 'initech', trust_domain: 'initech.example' }
const NEXT = '/proxy/setup/agent'
const SET = 'service.organisation_set'

const fingerprintOf = (pem: string): string => new X509Certificate(pem).fingerprint256

const setRows = async (gateway: TestGateway) => gateway.rows({ action: SET })

await t.test(
  'the organisation is named in a browser: the CA is made anew, and all that is issued is of it',
  async (t) => {
    const gateway = await testGateway(t, UNSET)
    const { jar, page, send } = await atOrganisation(onOneConnection(gateway), gateway.setupCode)
    t.equal(page.status, 200)
    for (const shown of [
      'name="org"',
      'name="trust_domain"',
      'value="acme"',
      'value="sallyport.local"',
      '/pki/ca.crt',
      fingerprintOf(gateway.ca),
    ])
      t.match(page.text, shown)

    const named = await send(INITECH)
    t.equal(named.status, 200, named.text)
    const ca = await caOf(gateway.url)
    t.not(ca, gateway.ca)
    t.match(new X509Certificate(ca).subject, 'O=initech')
    for (const said of [
      fingerprintOf(ca),
      ca.trim(),
      '/pki/ca.crt',
      'will warn once more',
      NEXT.replace('&', '&amp;'),
    ])
      t.match(named.text, said)
    t.equal((await jar.ask('GET', NEXT)).status, 200, 'the connection from before goes on')
    await t.rejects(gateway.call(null, 'GET', '/health'), 'a new one shows a certificate of the new CA')

    const known = trusting(gateway, ca)
    const browser = new Jar(known)
    for (const [name, value] of jar.cookies) browser.cookies.set(name, value)
    const csrf = csrfOf(await browser.ask('GET', NEXT))
    const enrolled = await browser.send('/proxy/agents', {
      csrf,
      agent_name: 'first',
      capabilities: 'llm.chat',
    })
    t.equal(enrolled.status, 200, enrolled.text)
    t.match(enrolled.text, '/pki/ca.crt', 'the last step offers the CA too')
    const [key = '', cert = ''] = [...enrolled.text.matchAll(/<pre class="copy[^>]*>([^<]+)</g)].map(
      ([, pem]) => pem ?? '',
    )
    const leaf = new X509Certificate(cert)
    t.same(uriNamesOf(leaf.raw), ['spiffe://initech.example/initech/first'])
    t.match(leaf.issuer, 'O=initech')
    const first = { id: 'initech::first', cert, key }
    t.equal((await known.call(first, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)

    t.equal((await browser.ask('GET', ORGANISATION)).status, 404, 'closed for ever after')
    t.match(await setRows(gateway), [
      {
        principal_id: 'admin',
        status: 'success',
        detail: {
          organisation: 'initech',
          trust_domain: 'initech.example',
          remade: true,
          ca_sha256: fingerprintOf(ca).replaceAll(':', '').toLowerCase(),
        },
      },
    ])

    await gateway.close(0)
    const other = { ...gateway.settings, org: 'other', named: { org: true, trustDomain: false } }
    await t.rejects(startGateway(other, { env: {} }), /belongs to the organisation initech, not other/)
    const again = await startGateway(gateway.settings, { env: {}, logTo: new PassThrough().resume() })
    t.equal(await caOf(again.url), ca, 'a restart keeps it')
    const asked = { agent: agentOf(ca, first), body: CHAT }
    t.equal((await ask(`${again.url}/v1/chat/completions`, 'POST', asked)).status, 200)
    await again.close(0)
  },
)

await t.test('a name that no certificate can carry is refused, with what was typed', async (t) => {
  const gateway = await testGateway(t)
  const { send } = await atOrganisation(gateway)
  for (const [field, value] of [
    ['org', 'my org'],
    ['org', 'a+b'],
    ['org', ''],
    ['org', '..'],
    ['org', 'x'.repeat(54)],
    ['trust_domain', 'Initech.example'],
    ['trust_domain', 'a b'],
    ['trust_domain', 'a+b'],
    ['trust_domain', '.example'],
    ['trust_domain', 'spiffe://a'],
  ] as const) {
    const { status, text } = await send({ ...INITECH, [field]: value })
    t.equal(status, 422, `${field} ${value}`)
    t.match(text, `<code>${field}</code>`)
    for (const typed of Object.values({ ...INITECH, [field]: value })) t.match(text, `value="${typed}"`)
  }
  const anonymous = await new Jar(gateway).ask('GET', ORGANISATION)
  t.match(anonymous, { status: 303, headers: { location: /^\/proxy\/sign-in/ } })
  t.equal((await send({ ...INITECH, csrf: 'x' })).status, 403)
  t.equal(await caOf(gateway.url), gateway.ca)
  t.same(await setRows(gateway), [])
})

await t.test('names that stay need no other CA', async (t) => {
  const gateway = await testGateway(t)
  const { jar, send } = await atOrganisation(gateway)
  const kept = await send({ org: 'acme', trust_domain: 'sallyport.local' })
  t.match(kept, { status: 303, headers: { location: NEXT } })
  t.equal(await caOf(gateway.url), gateway.ca)
  t.match(await setRows(gateway), [{ detail: { organisation: 'acme', remade: false } }])
  const late = await jar.send(ORGANISATION, {
    csrf: csrfOf(await jar.ask('GET', '/proxy/agents')),
    ...INITECH,
  })
  t.equal(late.status, 404)
  t.match(late.text, 'has already been named')
})

await t.test('what the environment names is shown as fixed', async (t) => {
  const both = { MCP_PROXY_ORG: 'initrode', MCP_PROXY_TRUST_DOMAIN: 'initrode.example' }
  const gateway = await testGateway(t, { settings: both })
  const { page, send } = await atOrganisation(gateway)
  for (const shown of ['initrode', 'initrode.example', 'MCP_PROXY_ORG', 'MCP_PROXY_TRUST_DOMAIN', 'Continue'])
    t.match(page.text, shown)
  t.notMatch(page.text, /name="(org|trust_domain)"/)
  const forged = await send(INITECH)
  t.equal(forged.status, 422)
  t.match(forged.text, 'the environment sets it')
  t.match(await send({}), { status: 303, headers: { location: NEXT } })
  t.match(await setRows(gateway), [{ detail: { organisation: 'initrode', remade: false } }])

  const one = await testGateway(t, { settings: { MCP_PROXY_ORG: 'initrode' } })
  const half = await atOrganisation(one)
  t.notMatch(half.page.text, 'name="org"')
  t.equal((await half.send({ trust_domain: 'initrode.example' })).status, 200)
  t.match(await setRows(one), [
    { detail: { organisation: 'initrode', trust_domain: 'initrode.example', remade: true } },
  ])
})

await t.test('once somebody is enrolled the CA is not made anew', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const { page, send } = await atOrganisation(gateway)
  t.match(page.text, 'somebody is already enrolled')
  t.notMatch(page.text, /name="(org|trust_domain)"/)
  const forged = await send(INITECH)
  t.equal(forged.status, 422)
  t.match(forged.text, 'certificates already contain it')
  t.match(await send({}), { status: 303 })
  t.equal(await caOf(gateway.url), gateway.ca)
  t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
})

await t.test('nor where the certificate was of a user that was erased since', async (t) => {
  const gateway = await testGateway(t)
  const { json } = await gateway.admin('POST', '/v1/admin/users', {
    user_name: 'ada',
    capabilities: ['llm.chat'],
  })
  const id = json.principal_id
  t.equal((await gateway.admin('POST', `/v1/admin/users/${id}/rotate-cert`, {})).status, 200)
  t.equal((await gateway.admin('POST', `/v1/admin/users/${id}/erase`)).status, 204)
  const { send } = await atOrganisation(gateway)
  t.equal((await send(INITECH)).status, 422)
})

await t.test(
  'an agent that is enrolled at the same moment is of one CA or the other, and works',
  async (t) => {
    const gateway = await testGateway(t)
    const { send } = await atOrganisation(gateway)
    const enroll = () =>
      gateway.admin('POST', '/v1/admin/agents', { agent_name: 'bot', capabilities: ['llm.chat'] })
    const [enrolled, named] = await Promise.all([enroll(), send(INITECH)])
    const { json, status } = enrolled
    t.ok([201, 503].includes(status), `${status}`)
    t.ok([200, 422, 503].includes(named.status), `${named.status}`)
    t.not(status === 201, named.status === 200, 'one of the two')
    const now = trusting(gateway, await caOf(gateway.url))
    if (status !== 201) return
    const bot = { id: json.agent_id, cert: json.cert_chain_pem, key: json.private_key_pem }
    t.equal((await now.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
  },
)

await t.test('of two people who name it at once one wins, and the other is told', async (t) => {
  const gateway = await testGateway(t)
  const [one, two] = [await atOrganisation(gateway), await atOrganisation(gateway)]
  const sent = await Promise.all([
    one.send(INITECH),
    two.send({ org: 'initrode', trust_domain: 'b.example' }),
  ])
  t.same(
    sent.map(({ status }) => status).toSorted((a, b) => a - b),
    [200, 404],
  )
  t.match(sent.find(({ status }) => status === 404)?.text, 'has already been named')
  const winner = sent[0]?.status === 200 ? 'initech' : 'initrode'
  t.match(new X509Certificate(await caOf(gateway.url)).subject, `O=${winner}`)
  t.equal((await setRows(gateway)).length, 1)
})

await t.test('a CA that one has is attached in the same step, or nothing is done', async (t) => {
  const gateway = await testGateway(t)
  const { send } = await atOrganisation(gateway)
  const broken = await send({ ...INITECH, ca_pem: 'no certificate', kind: 'organisation' })
  t.equal(broken.status, 422, broken.text)
  t.match(broken.text, 'no certificate', 'what was typed stays')
  t.equal(await caOf(gateway.url), gateway.ca)
  const { rootPem } = await madeAuthority(Date.now(), 'elsewhere')
  t.equal((await send({ ...INITECH, ca_pem: rootPem, kind: 'organisation' })).status, 200)
  const actions = (await gateway.rows()).map(({ action }) => action)
  t.same(
    actions.filter((action) => action === SET || action === 'ca.attached'),
    [SET, 'ca.attached'],
  )
  const known = trusting(gateway, await caOf(gateway.url))
  const { json } = await known.call(null, 'GET', '/v1/admin/ca', {
    headers: { 'x-admin-secret': ADMIN_SECRET },
  })
  t.match(json, [{ kind: 'organisation', ca_pem: rootPem }])
})

await t.test('the API does the same, once', async (t) => {
  const gateway = await testGateway(t)
  t.match(await gateway.admin('GET', '/v1/admin/ca/organisation'), {
    status: 200,
    json: { organisation: 'acme', organisation_fixed_by: null, ca_pem: gateway.ca, answered: false },
  })
  const path = '/v1/admin/ca/organisation'
  t.equal((await gateway.admin('PUT', path, { org: 'a b' })).status, 422)
  const named = await gateway.admin('PUT', path, { org: 'initech' })
  t.match(named, {
    status: 200,
    json: { organisation: 'initech', trust_domain: 'sallyport.local', remade: true },
  })
  const known = trusting(gateway, named.json.ca_pem)
  const headers = { 'x-admin-secret': ADMIN_SECRET }
  t.equal((await known.call(null, 'PUT', path, { headers, body: INITECH })).status, 409)
  t.match(await known.call(null, 'GET', path, { headers }), {
    json: { organisation: 'initech', answered: true },
  })
})
