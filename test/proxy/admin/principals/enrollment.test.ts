import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { openssl, without } from '../../../support/certs/openssl.ts'
import { proofSigner } from '../../../support/dpop.ts'
import { byCorporateCa, type Foreign, trustDomain } from '../../../support/foreign.ts'
import { CHAT, type Identity, type TestGateway, testGateway } from '../../../support/gateway.ts'

const BYOCA = '/v1/admin/agents/enroll/byoca'
const SPIFFE = '/v1/admin/agents/enroll/spiffe'

const attach = (gateway: TestGateway, ca_pem: string, kind: string) =>
  gateway.admin('POST', '/v1/admin/ca/attach', { ca_pem, kind })

const identity = (id: string, { certPem, keyPem }: Foreign): Identity => ({ id, cert: certPem, key: keyPem })

const chat = async (gateway: TestGateway, who: Identity, headers: Record<string, string> = {}) =>
  gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT, headers })

await t.test(
  '§5.3 a certificate of the attached organisation CA is enrolled, pinned and served',
  async (t) => {
    const gateway = await testGateway(t)
    const own = await byCorporateCa('bot')
    const body = {
      agent_name: 'bot',
      capabilities: ['llm.chat'],
      cert_pem: own.certPem,
      private_key_pem: own.keyPem,
    }
    const early = await gateway.admin('POST', BYOCA, body)
    t.strictSame([early.status, early.json.reason], [422, 'no_ca_attached'])
    t.equal((await attach(gateway, own.caPem, 'organisation')).status, 201)
    const { publicJwk, jkt } = { publicJwk: proofSigner(), jkt: '' }
    const { status, json } = await gateway.admin('POST', BYOCA, {
      ...body,
      dpop_jwk: publicJwk.jwk,
      federated: true,
    })
    t.equal(status, 201)
    t.match(json, {
      agent_id: 'acme::bot',
      enrollment_method: 'byoca',
      federated: true,
      dpop_jkt: publicJwk.jkt,
    })
    t.notOk('private_key_pem' in json, jkt)
    t.match(json.api_key, /^sk_[0-9a-f]{16}_[A-Za-z0-9_-]{43}$/)
    t.equal((await chat(gateway, identity('acme::bot', own))).status, 200)
    const [row] = await gateway.rows({ action: 'agent.enrolled_byoca' })
    t.match(row?.detail, { subject: 'acme::bot', capabilities: ['llm.chat'] })
    t.notMatch(JSON.stringify(await gateway.rows()), json.api_key)
  },
)

await t.test(
  'M-14 each thing that is wrong with a certificate is a 422 of its own, and nothing is stored',
  async (t) => {
    const gateway = await testGateway(t)
    const own = await byCorporateCa('bot')
    const other = await byCorporateCa('bot')
    await attach(gateway, own.caPem, 'organisation')
    const good = { agent_name: 'bot', cert_pem: own.certPem, private_key_pem: own.keyPem }
    const cases: [string, Record<string, unknown>][] = [
      ['key_mismatch', { private_key_pem: other.keyPem }],
      ['chain_invalid', { cert_pem: other.certPem, private_key_pem: other.keyPem }],
      ['spiffe_mismatch', { agent_name: 'somebody-else' }],
      ['certificate_unreadable', { cert_pem: 'nonsense' }],
      ['private_key_unreadable', { private_key_pem: 'nonsense' }],
      ['body_unprocessable', { cert_pem: undefined }],
      ['body_unprocessable', { dpop_jwk: { kty: 'oct', k: 'AA' } }],
      ['body_unprocessable', { surprise: 1 }],
    ]
    for (const [reason, spoiled] of cases) {
      const { status, json } = await gateway.admin('POST', BYOCA, { ...good, ...spoiled })
      t.strictSame([status, json.reason], [422, reason])
      if (reason !== 'body_unprocessable')
        t.match(json.message, / (?:Send|Use|Issue|Attach|Leave) [^.]+[.]$/, `${reason} says what to do`)
    }
    t.strictSame((await gateway.admin('GET', '/v1/admin/agents')).json, [])
    t.equal((await gateway.admin('POST', BYOCA, good)).status, 201, 'the good one still passes')
    const twin = await gateway.admin('POST', BYOCA, good)
    t.equal(twin.status, 409)
  },
)

await t.test(
  '§5.3 two concurrent enrollments of one name give one 201 and one 409 and one key',
  async (t) => {
    const gateway = await testGateway(t)
    const own = await byCorporateCa('bot')
    await attach(gateway, own.caPem, 'organisation')
    const body = { agent_name: 'bot', cert_pem: own.certPem, private_key_pem: own.keyPem }
    const answers = await Promise.all([1, 2, 3].map(() => gateway.admin('POST', BYOCA, body)))
    t.strictSame(
      answers.map(({ status }) => status).toSorted((a, b) => a - b),
      [201, 409, 409],
    )
    t.equal(answers.filter(({ json }) => 'api_key' in json).length, 1)
  },
)

await t.test(
  'docs/protocol.md#cas a CA that signs with RSASSA-PSS vouches for an agent with an Ed25519 key, over TLS',
  { skip: without('openssl') },
  async (t) => {
    const gateway = await testGateway(t)
    const directory = t.testdir({ 'leaf.ext': 'keyUsage=digitalSignature\nextendedKeyUsage=clientAuth\n' })
    const run = (...args: readonly string[]) => {
      const { status, text } = openssl(directory, args)
      if (status !== 0) throw new Error(text)
    }
    const pss = ['-sha256', '-sigopt', 'rsa_padding_mode:pss']
    const made = ['req', '-new', '-nodes', '-newkey']
    run(...made, 'rsa:2048', '-x509', '-keyout', 'ca.key', '-out', 'ca.pem', '-subj', '/CN=ca', ...pss)
    run(...made, 'ed25519', '-keyout', 'leaf.key', '-out', 'leaf.csr', '-subj', '/CN=leaf')
    const signed = ['-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-out', 'leaf.pem']
    run('x509', '-req', '-in', 'leaf.csr', ...signed, '-extfile', 'leaf.ext', ...pss)
    const [caPem = '', certPem = '', keyPem = ''] = ['ca.pem', 'leaf.pem', 'leaf.key'].map((name) =>
      readFileSync(join(directory, name), 'utf8'),
    )
    t.equal((await attach(gateway, caPem, 'organisation')).status, 201)
    const { status, json } = await gateway.admin('POST', BYOCA, {
      agent_name: 'bot',
      capabilities: ['llm.chat'],
      cert_pem: certPem,
      private_key_pem: keyPem,
    })
    t.equal(status, 201, json.message)
    t.equal((await chat(gateway, identity('acme::bot', { caPem, certPem, keyPem }))).status, 200)
    for (const kind of ['organisation', 'spiffe']) {
      const leaf = await attach(gateway, certPem, kind)
      t.strictSame([leaf.status, leaf.json.reason], [422, 'not_a_ca'])
      t.match(
        leaf.json.message,
        'A certificate of the text is not a CA certificate. Send the certificate of the CA',
      )
    }
  },
)

await t.test('§5.1 an API key goes with its own certificate, and never in its place', async (t) => {
  const gateway = await testGateway(t)
  const own = await byCorporateCa('bot')
  await attach(gateway, own.caPem, 'organisation')
  const body = {
    agent_name: 'bot',
    capabilities: ['llm.chat'],
    cert_pem: own.certPem,
    private_key_pem: own.keyPem,
  }
  const { json } = await gateway.admin('POST', BYOCA, body)
  const bot = identity('acme::bot', own)
  const eve = await gateway.enroll('eve', ['llm.chat'])
  const bearer = { authorization: `Bearer ${json.api_key}` }
  t.equal((await chat(gateway, bot, bearer)).status, 200)
  t.equal((await chat(gateway, bot, { 'x-api-key': json.api_key })).status, 200)
  t.equal((await chat(gateway, eve, bearer)).status, 401, 'somebody else’s certificate')
  const alone = await gateway.call(null, 'POST', '/v1/chat/completions', { body: CHAT, headers: bearer })
  t.equal(alone.status, 401, 'no certificate')
  const wrong = `${json.api_key.slice(0, -1)}${json.api_key.endsWith('A') ? 'B' : 'A'}`
  t.equal((await chat(gateway, bot, { authorization: `Bearer ${wrong}` })).status, 401)
  t.equal(
    (await chat(gateway, bot, { authorization: 'Bearer sk-a-vendor-key' })).status,
    200,
    'a vendor’s key is ignored',
  )
  const sent = JSON.stringify(gateway.upstream.seen.map(({ headers }) => headers))
  t.notMatch(sent, json.api_key, 'it never reaches a provider')
})

await t.test(
  'docs/protocol.md#principals an enrolled SPIFFE id keeps working when its SVID rotates, and under no other CA',
  async (t) => {
    const gateway = await testGateway(t)
    const spire = await trustDomain()
    const id = 'spiffe://spire.test/ns/prod/sa/bot'
    const first = await spire.svid(id)
    await attach(gateway, spire.caPem, 'spiffe')
    const body = {
      agent_name: 'bot',
      capabilities: ['llm.chat'],
      svid_pem: first.certPem,
      svid_key_pem: first.keyPem,
    }
    const { status, json } = await gateway.admin('POST', SPIFFE, body)
    t.equal(status, 201)
    t.match(json, { enrollment_method: 'spiffe', spiffe_id: id })
    t.equal((await chat(gateway, identity('acme::bot', first))).status, 200)
    const rotated = await spire.svid(id)
    t.equal((await chat(gateway, identity('acme::bot', rotated))).status, 200, 'nobody had to do anything')
    const impostor = await (await trustDomain()).svid(id)
    t.equal((await chat(gateway, identity('acme::bot', impostor))).status, 401)
    const neighbour = await spire.svid('spiffe://spire.test/ns/prod/sa/other')
    t.equal((await chat(gateway, identity('acme::other', neighbour))).status, 401)
    await gateway.admin('PATCH', '/v1/admin/agents/acme::bot/capabilities', { capabilities: [] })
    t.equal((await chat(gateway, identity('acme::bot', rotated))).status, 403, 'and is gated like any other')
    const [{ digest }] = (await gateway.admin('GET', '/v1/admin/ca')).json
    const relied = await gateway.admin('DELETE', `/v1/admin/ca/${digest}`)
    t.strictSame([relied.status, relied.json.reason], [409, 'ca_relied_on'])
    t.match(relied.json.detail, { agents: ['acme::bot'], agents_alone: 1 })
    t.equal((await gateway.admin('DELETE', `/v1/admin/ca/${digest}?lock_out=true`)).status, 204)
    const later = await spire.svid(id)
    t.equal(
      (await chat(gateway, identity('acme::bot', later))).status,
      401,
      'without its bundle it is nobody',
    )
  },
)

await t.test(
  'docs/protocol.md#principals a bundle in the enrollment serves its own agent alone',
  async (t) => {
    const gateway = await testGateway(t)
    const spire = await trustDomain()
    const first = await spire.svid('spiffe://spire.test/bot')
    const body = { svid_pem: first.certPem, svid_key_pem: first.keyPem, trust_bundle_pem: spire.caPem }
    const { status } = await gateway.admin('POST', SPIFFE, {
      agent_name: 'bot',
      capabilities: ['llm.chat'],
      ...body,
    })
    t.equal(status, 201)
    t.equal(
      (await chat(gateway, identity('acme::bot', await spire.svid('spiffe://spire.test/bot')))).status,
      200,
    )
    const second = await spire.svid('spiffe://spire.test/bot-2')
    const without = { svid_pem: second.certPem, svid_key_pem: second.keyPem }
    const refused = await gateway.admin('POST', SPIFFE, { agent_name: 'bot-2', ...without })
    t.strictSame([refused.status, refused.json.reason], [422, 'no_ca_attached'])
  },
)

await t.test(
  '§5.3 a deactivated agent may be enrolled anew, by another path, with nothing left of before',
  async (t) => {
    const gateway = await testGateway(t)
    const old = await gateway.enroll('bot', ['llm.chat', 'http.get'])
    const own = await byCorporateCa('bot')
    await attach(gateway, own.caPem, 'organisation')
    const body = { agent_name: 'bot', cert_pem: own.certPem, private_key_pem: own.keyPem }
    t.equal((await gateway.admin('POST', BYOCA, body)).status, 409, 'not while it is active')
    await gateway.admin('DELETE', `/v1/admin/agents/${old.id}`)
    const { status, json } = await gateway.admin('POST', BYOCA, body)
    t.equal(status, 201)
    t.match(json, { is_active: true, capabilities: [], enrollment_method: 'byoca' })
    t.equal((await chat(gateway, old)).status, 401, 'the old certificate is nobody’s')
    t.equal((await chat(gateway, identity('acme::bot', own))).status, 403, 'the new one holds nothing yet')
  },
)

await t.test(
  'docs/protocol.md#principals CAs are attached, listed with digest and expiry, and detached; each once',
  async (t) => {
    const gateway = await testGateway(t)
    const { caPem } = await byCorporateCa('bot')
    const { status, json } = await attach(gateway, caPem, 'organisation')
    t.equal(status, 201)
    t.match(json[0], { kind: 'organisation', subject: /CN=acme Root CA/, digest: /^[0-9a-f]{64}$/ })
    const twice = await attach(gateway, caPem, 'spiffe')
    t.strictSame([twice.status, twice.json.reason], [409, 'ca_attached_already'])
    t.equal((await attach(gateway, 'nonsense', 'spiffe')).status, 422)
    t.equal((await attach(gateway, caPem, 'other')).status, 422)
    t.equal((await gateway.admin('GET', '/v1/admin/ca')).json.length, 1)
    t.equal((await gateway.admin('DELETE', `/v1/admin/ca/${'0'.repeat(64)}`)).status, 404)
    t.equal((await gateway.admin('DELETE', `/v1/admin/ca/${json[0].digest}`)).status, 204)
    const actions = (await gateway.rows())
      .map(({ action }) => action)
      .filter((action) => action.startsWith('ca.'))
    t.strictSame(actions, ['ca.attached', 'ca.detached'])
  },
)
