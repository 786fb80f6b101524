import { hash, X509Certificate } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { pino } from 'pino'
import t, { type Test } from 'tap'
import { trustBundleOf } from '../../proxy/admin/principals/enroll.ts'
import { type BundleStanding, followBundles } from '../../proxy/federation/follow-bundles.ts'
import { clock } from '../support/clients/identity.ts'
import { asOwner } from '../support/db/owner.ts'
import { byCorporateCa, trustDomain } from '../support/foreign.ts'
import { CHAT, type Identity, scratch, type TestGateway, testGateway } from '../support/gateway.ts'
import { trusted } from '../support/llm/trusted.ts'
import { signedInBySecret } from '../support/oidc/jar.ts'
import { as, onTheMachine, operatorNamed, operatorOnTheMachine } from '../support/operators.ts'
import { eventually } from '../support/settled.ts'
import { verbsInTurn } from '../support/verbs-in-turn.ts'
import { allVerifiers } from '../support/verifiers.ts'

const sallyport = verbsInTurn(t)

type Domain = Awaited<ReturnType<typeof trustDomain>>

const ID = 'spiffe://spire.test/ns/prod/sa/pay'

const identity = async (domain: Domain, id = ID): Promise<Identity> => {
  const { certPem, keyPem } = await domain.svid(id)
  return { id: 'acme::pay', cert: certPem, key: keyPem }
}

const chat = async (gateway: TestGateway, who: Identity) =>
  (await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })).status

const attach = async (gateway: TestGateway, { caPem }: Domain): Promise<string> =>
  (await gateway.admin('POST', '/v1/admin/ca/attach', { ca_pem: caPem, kind: 'spiffe' })).json[0].digest

async function enroll(gateway: TestGateway, domain: Domain, name = 'pay', id = ID) {
  const { certPem, keyPem } = await domain.svid(id)
  const body = { agent_name: name, capabilities: ['llm.chat'], svid_pem: certPem, svid_key_pem: keyPem }
  const { status, json } = await gateway.admin('POST', '/v1/admin/agents/enroll/spiffe', body)
  if (status !== 201) throw new Error(JSON.stringify(json))
}

await t.test('H7 whoever holds admin.settings alone attaches a CA, and is no agent by it', async (t) => {
  const gateway = await testGateway(t)
  const spire = await trustDomain()
  await attach(gateway, spire)
  await enroll(gateway, spire)
  const mallory = as(gateway, await operatorNamed(gateway, 'mallory', ['admin.settings']))
  const own = await trustDomain()
  const body = { ca_pem: own.caPem, kind: 'spiffe' }
  t.equal((await mallory('POST', '/v1/admin/ca/attach', body)).status, 201, 'it may attach one')
  t.equal(await chat(gateway, await identity(own)), 401, 'which vouches for nobody who was there before')
  t.equal(await chat(gateway, await identity(spire)), 200, 'and takes nobody’s place')
})

await t.test('H7 a CA that was attached before an agent was enrolled by another one', async (t) => {
  const gateway = await testGateway(t)
  const [spire, own] = [await trustDomain(), await trustDomain()]
  await attach(gateway, own)
  await attach(gateway, spire)
  await enroll(gateway, spire)
  t.equal(await chat(gateway, await identity(own)), 401)
  t.equal(await chat(gateway, await identity(spire)), 200)
})

await t.test('H7 somebody with admin.enroll says so, and takes it back; each is a row', async (t) => {
  const gateway = await testGateway(t)
  const [spire, next, corp] = [await trustDomain(), await trustDomain(), await trustDomain()]
  const first = await attach(gateway, spire)
  await enroll(gateway, spire)
  const second = await attach(gateway, next)
  await gateway.admin('POST', '/v1/admin/ca/attach', { ca_pem: corp.caPem, kind: 'organisation' })
  const settings = as(gateway, await operatorNamed(gateway, 'settings', ['admin.settings', 'admin.read']))
  const enroller = as(gateway, await operatorNamed(gateway, 'enroller', ['admin.enroll', 'admin.read']))
  const path = '/v1/admin/agents/acme::pay/trusted-cas'
  const refused = await settings('POST', path, { digest: second })
  t.match(refused, { status: 403, json: { detail: { required_capability: 'admin.enroll' } } })
  t.equal((await settings('DELETE', `${path}/${first}`)).status, 403)
  t.equal((await settings('POST', '/v1/admin/agents/trusted-cas', { digest: second, as: first })).status, 403)
  t.equal(await chat(gateway, await identity(next)), 401)

  t.match(await enroller('POST', path, { digest: second }), {
    status: 200,
    json: {
      own_bundle: false,
      cas: [{ digest: first }, { digest: second, trusted_by: 'acme::operator::enroller' }],
    },
  })
  t.equal(await chat(gateway, await identity(next)), 200)
  t.equal((await enroller('POST', path, { digest: second })).status, 409, 'it does already')
  const organisations = (await gateway.admin('GET', '/v1/admin/ca')).json.find(
    ({ kind }: { kind: string }) => kind === 'organisation',
  )
  for (const digest of [organisations.digest, '0'.repeat(64), 'nonsense'])
    t.equal((await enroller('POST', path, { digest })).status, 422, digest)
  t.match((await gateway.admin('GET', '/v1/admin/ca')).json, [
    { digest: first, agents: 1, agents_alone: 0 },
    { digest: second, agents: 1, agents_alone: 0 },
  ])

  t.equal((await enroller('DELETE', `${path}/${second}`)).status, 204)
  t.equal(await chat(gateway, await identity(next)), 401, 'at the very next call')
  t.equal((await enroller('DELETE', `${path}/${second}`)).status, 404)
  const rows = (await gateway.rows()).filter(
    ({ action, status }) => status === 'success' && /^ca\.(dis)?trusted$/.test(action),
  )
  t.strictSame(
    rows.map(({ action, principal_id: by, detail }) => [action, by, detail.digest, detail.subjects]),
    [
      ['ca.trusted', 'acme::operator::enroller', second, ['acme::pay']],
      ['ca.distrusted', 'acme::operator::enroller', second, ['acme::pay']],
    ],
  )
})

await t.test('H7 a CA is replaced without an outage, for all agents at once', async (t) => {
  const gateway = await testGateway(t)
  const [old, next] = [await trustDomain(), await trustDomain()]
  const first = await attach(gateway, old)
  const ids = ['a', 'b', 'c'].map((name) => [name, `spiffe://spire.test/${name}`] as const)
  for (const [name, id] of ids) await enroll(gateway, old, name, id)
  await gateway.admin('DELETE', '/v1/admin/agents/acme::c')
  const second = await attach(gateway, next)
  const all = { digest: second, as: first }
  t.match(await gateway.admin('POST', '/v1/admin/agents/trusted-cas', all), {
    status: 200,
    json: { agents: 3 },
  })
  t.match((await gateway.admin('POST', '/v1/admin/agents/trusted-cas', all)).json, { agents: 0 }, 'once')
  for (const [, id] of ids.slice(0, 2))
    for (const domain of [old, next]) t.equal(await chat(gateway, await identity(domain, id)), 200)
  t.equal((await gateway.admin('DELETE', `/v1/admin/ca/${first}`)).status, 204, 'nobody rests on it alone')
  for (const [, id] of ids.slice(0, 2)) {
    t.equal(await chat(gateway, await identity(next, id)), 200)
    t.equal(await chat(gateway, await identity(old, id)), 401)
  }
  t.equal((await gateway.admin('POST', '/v1/admin/agents/acme::c/reactivate')).status, 200)
  t.equal(await chat(gateway, await identity(next, 'spiffe://spire.test/c')), 200, 'who was away, too')
})

await t.test('H7 a CA that was detached is nobody’s when it is attached again', async (t) => {
  const gateway = await testGateway(t)
  const [spire, next] = [await trustDomain(), await trustDomain()]
  const first = await attach(gateway, spire)
  await enroll(gateway, spire)
  const relied = await gateway.admin('DELETE', `/v1/admin/ca/${first}`)
  t.match(relied, {
    status: 409,
    json: { reason: 'ca_relied_on', detail: { agents: ['acme::pay'], agents_alone: 1 } },
  })
  t.equal((await gateway.admin('DELETE', `/v1/admin/ca/${first}?lock_out=yes`)).status, 422)
  await gateway.admin('POST', '/v1/admin/agents/acme::pay/trusted-cas', {
    digest: await attach(gateway, next),
  })
  t.equal((await gateway.admin('DELETE', `/v1/admin/ca/${first}`)).status, 204)
  t.equal(await attach(gateway, spire), first)
  t.equal(await chat(gateway, await identity(spire)), 401)
  t.equal(await chat(gateway, await identity(next)), 200)
})

await t.test(
  'H7 whom an attached CA does not vouch for, it replaces nothing of: a bundle, a pinned certificate',
  async (t) => {
    const gateway = await testGateway(t)
    const [own, other] = [await trustDomain(), await trustDomain()]
    const { certPem, keyPem } = await own.svid(ID)
    const body = { agent_name: 'pay', capabilities: ['llm.chat'], svid_pem: certPem, svid_key_pem: keyPem }
    const enrolled = await gateway.admin('POST', '/v1/admin/agents/enroll/spiffe', {
      ...body,
      trust_bundle_pem: own.caPem,
    })
    t.equal(enrolled.status, 201)
    const digest = await attach(gateway, other)
    t.equal(await chat(gateway, await identity(other)), 401, 'a bundle of its own')
    const path = '/v1/admin/agents/acme::pay/trusted-cas'
    t.match((await gateway.admin('GET', path)).json, { own_bundle: true, cas: [] })
    t.equal(await chat(gateway, await identity(own)), 200)

    const corp = await byCorporateCa('bot')
    const attachCorp = (ca_pem: string) =>
      gateway.admin('POST', '/v1/admin/ca/attach', { ca_pem, kind: 'organisation' })
    await attachCorp(corp.caPem)
    await gateway.admin('POST', '/v1/admin/agents/enroll/byoca', {
      agent_name: 'bot',
      capabilities: ['llm.chat'],
      cert_pem: corp.certPem,
      private_key_pem: corp.keyPem,
    })
    const evil = await byCorporateCa('bot')
    await attachCorp(evil.caPem)
    t.equal(await chat(gateway, { id: 'acme::bot', cert: evil.certPem, key: evil.keyPem }), 401, 'byoca')
    t.equal(await chat(gateway, { id: 'acme::bot', cert: corp.certPem, key: corp.keyPem }), 200)
    const minted = await gateway.enroll('minted', ['llm.chat'])
    t.equal(
      (await gateway.admin('POST', `/v1/admin/agents/${minted.id}/trusted-cas`, { digest })).status,
      409,
    )
    const named = await other.svid('spiffe://sallyport.local/acme/minted')
    t.equal(await chat(gateway, { id: minted.id, cert: named.certPem, key: named.keyPem }), 401, 'minted')
  },
)

await t.test('H7 whoever is enrolled again, or erased, leaves no CA to the next of its name', async (t) => {
  const gateway = await testGateway(t)
  const spire = await trustDomain()
  await attach(gateway, spire)
  for (const how of ['deactivated', 'erased']) {
    const [name, id] = [how, `spiffe://spire.test/${how}`]
    await enroll(gateway, spire, name, id)
    const path = `/v1/admin/agents/acme::${name}`
    await (how === 'erased' ? gateway.admin('POST', `${path}/erase`) : gateway.admin('DELETE', path))
    await gateway.enroll(name, ['llm.chat'])
    t.match((await gateway.admin('GET', `${path}/trusted-cas`)).json, { own_bundle: false, cas: [] }, how)
    t.equal(await chat(gateway, await identity(spire, id)), 401, how)
  }
})

const enrollWithBundle = async (gateway: TestGateway, domain: Domain) => {
  const { certPem, keyPem } = await domain.svid(ID)
  const enrolled = await gateway.admin('POST', '/v1/admin/agents/enroll/spiffe', {
    agent_name: 'pay',
    capabilities: ['llm.chat'],
    svid_pem: certPem,
    svid_key_pem: keyPem,
    trust_bundle_pem: domain.caPem,
  })
  if (enrolled.status !== 201) throw new Error(enrolled.text)
}
const BUNDLE = '/v1/admin/agents/acme::pay/trust-bundle'

/** An HTTPS server that this process trusts. */
async function httpsSite(t: Test, answer: () => { readonly status: number; readonly body: string }) {
  const server = createServer(await trusted(t), (_, res) => {
    const { status, body } = answer()
    res.writeHead(status, { location: 'https://127.0.0.1/' }).end(body)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  return { url: `https://127.0.0.1:${(server.address() as AddressInfo).port}` }
}

await t.test(
  'H7 an attached CA vouches for an agent with a bundle of its own once that is said',
  async (t) => {
    const gateway = await testGateway(t)
    const [own, next] = [await trustDomain(), await trustDomain()]
    await enrollWithBundle(gateway, own)
    const digest = await attach(gateway, next)
    t.equal(await chat(gateway, await identity(next)), 401, 'attaching is not enough')
    const path = '/v1/admin/agents/acme::pay/trusted-cas'
    const settings = as(gateway, await operatorNamed(gateway, 'settings', ['admin.settings']))
    t.equal((await settings('POST', path, { digest })).status, 403)
    t.match(await gateway.admin('POST', path, { digest }), {
      status: 200,
      json: { own_bundle: true, bundle: [{ digest: /^[0-9a-f]{64}$/ }], cas: [{ digest }] },
    })
    for (const domain of [own, next]) t.equal(await chat(gateway, await identity(domain)), 200)
    t.equal(
      (await gateway.admin('DELETE', `/v1/admin/ca/${digest}`)).status,
      409,
      'its bundle may have ended',
    )
    t.equal((await gateway.admin('PUT', BUNDLE, { trust_bundle_pem: null, grace_hours: 0 })).status, 200)
    t.equal(await chat(gateway, await identity(own)), 401)
    t.equal(await chat(gateway, await identity(next)), 200)
    t.equal((await gateway.admin('DELETE', `${path}/${digest}`)).status, 204)
    t.equal(await chat(gateway, await identity(next)), 401, 'at the very next call')
  },
)

await t.test('H7 a trust bundle is replaced with grace and one row, by who may enroll alone', async (t) => {
  const time = clock()
  const gateway = await testGateway(t, { clock: time.now })
  const [first, second, third] = [await trustDomain(), await trustDomain(), await trustDomain()]
  await enrollWithBundle(gateway, first)
  const settings = as(gateway, await operatorNamed(gateway, 'settings', ['admin.settings', 'admin.grant']))
  const body = { trust_bundle_pem: second.caPem }
  t.equal((await settings('PUT', BUNDLE, body)).status, 403)
  for (const [trust_bundle_pem, reason] of [
    ['nonsense', 'certificate_unreadable'],
    [(await second.svid(ID)).certPem, 'not_a_ca'],
  ] as const)
    t.match(await gateway.admin('PUT', BUNDLE, { trust_bundle_pem }), { status: 422, json: { reason } })
  t.match(await gateway.admin('PUT', BUNDLE, { trust_bundle_pem: null }), {
    status: 409,
    json: { message: /nobody could call as it/ },
  })
  t.equal(await chat(gateway, await identity(second)), 401, 'nothing is changed yet')

  const { etag } = (await gateway.admin('GET', '/v1/admin/agents/acme::pay')).headers
  const replaced = await gateway.admin('PUT', BUNDLE, body, { 'if-match': String(etag) })
  t.match(replaced, {
    status: 200,
    json: { own_bundle: true, bundle: [{}], previous_bundles: [{ cas: [{}] }] },
  })
  const until = Date.parse(replaced.json.previous_bundles[0].valid_until)
  t.equal(until, time.now() + 48 * 3_600_000, 'the grace that is configured')
  const stale = await gateway.admin(
    'PUT',
    BUNDLE,
    { trust_bundle_pem: third.caPem },
    { 'if-match': String(etag) },
  )
  t.equal(stale.status, 412, 'somebody else was faster')
  for (const domain of [first, second]) t.equal(await chat(gateway, await identity(domain)), 200)
  const [now, before] = (
    await gateway.rows({ action: 'egress_llm_chat', order: 'desc', limit: 1000 })
  ).filter(({ status }) => status === 'allowed')
  t.match(before?.detail, { certificate: 'previous' }, 'by the bundle before')
  t.notMatch(now?.detail, { certificate: 'previous' })

  // A wrong one, and the right one again: the bundle before stays in its own grace.
  await gateway.admin('PUT', BUNDLE, { trust_bundle_pem: third.caPem })
  await gateway.admin('PUT', BUNDLE, { trust_bundle_pem: third.caPem })
  for (const domain of [first, second, third]) t.equal(await chat(gateway, await identity(domain)), 200)
  const rows = (await gateway.rows({ action: 'ca.bundle_replaced', order: 'asc', limit: 1000 })).filter(
    ({ status }) => status === 'success',
  )
  const [one] = rows
  t.match(one, { detail: { subject: 'acme::pay', previous_valid_until: new Date(until).toISOString() } })
  t.strictSame(one?.detail.digests, [replaced.json.bundle[0].digest])
  t.strictSame(one?.detail.previous, [replaced.json.previous_bundles[0].cas[0].digest])
  t.equal(rows.length, 3)

  const odd = await gateway.admin('PUT', BUNDLE, {
    trust_bundle_pem: `${second.caPem}${(await second.svid(ID)).certPem}`,
    grace_hours: 0,
  })
  t.match(odd, { status: 200, json: { bundle: [{}], passed_over: [{ reason: 'not_a_ca' }] } })
  t.equal(await chat(gateway, await identity(second)), 200)
  for (const domain of [first, third]) t.equal(await chat(gateway, await identity(domain)), 401, 'at once')
  await gateway.admin('PUT', BUNDLE, { trust_bundle_pem: third.caPem, grace_hours: 1 })
  t.equal(await chat(gateway, await identity(second)), 200)
  time.move(3_601)
  t.equal(await chat(gateway, await identity(second)), 401, 'its grace is over')
  t.equal(await chat(gateway, await identity(third)), 200)
  t.strictSame(
    (await gateway.admin('GET', '/v1/admin/agents/acme::pay/trusted-cas')).json.previous_bundles,
    [],
  )
  t.match((await gateway.admin('POST', '/v1/admin/audit/verify')).json, { ok: true })

  const minted = await gateway.enroll('minted', ['llm.chat'])
  const refused = await gateway.admin('PUT', `/v1/admin/agents/${minted.id}/trust-bundle`, body)
  t.match(refused, { status: 409, json: { message: 'This agent is not identified by a SPIFFE id.' } })
})

await t.test('H7 a followed trust bundle is read again: a file, and a SPIFFE bundle endpoint', async (t) => {
  const time = clock()
  const file = join(await scratch(t), 'bundle.pem')
  const [first, second, third] = [await trustDomain(), await trustDomain(), await trustDomain()]
  await writeFile(file, first.caPem)
  let served = { status: 200, body: '{}' }
  const site = await httpsSite(t, () => served)
  const bundles = `{ prod: { file: ${file} }, partner: { url: '${site.url}/bundle', grace_hours: 0 } }`
  const gateway = await testGateway(t, {
    clock: time.now,
    files: { '10-pin.yaml': `plugin: pin\ntrust_bundles: ${bundles}\n` },
  })
  await enrollWithBundle(gateway, first)
  const rows = async () =>
    (await gateway.rows({ action: 'ca.bundle_replaced', order: 'asc', limit: 1000 })).map(
      ({ detail }) => detail,
    )
  const shown = async () => (await gateway.admin('GET', '/v1/admin/agents/acme::pay/trusted-cas')).json
  const works = async (domain: Domain, status: number) => {
    const who = await identity(domain)
    return eventually(
      () => chat(gateway, who),
      (answer) => answer === status,
    )
  }
  for (const [body, status] of [
    [{ follow: 'nobody' }, 422],
    [{}, 422],
    [{ follow: 'prod', trust_bundle_pem: first.caPem }, 422],
    [{ follow: 'prod' }, 200],
  ] as const)
    t.equal((await gateway.admin('PUT', BUNDLE, body)).status, status, JSON.stringify(body))
  t.match(await eventually(shown, ({ follows }) => follows.read_at !== null), {
    follows: { name: 'prod', problem: null },
    bundle: [{}],
  })

  await writeFile(file, second.caPem)
  time.move(31)
  t.equal(await works(second, 200), 200, 'the new CA, with nobody')
  t.equal(await works(first, 200), 200, 'the one before, in its grace')
  t.equal((await rows()).length, 2, 'one says that it follows, one that the CAs changed')
  t.match((await rows())[1], { subject: 'acme::pay', follows: 'prod', previous_valid_until: /^20/ })
  for (const spoiled of [
    'nonsense',
    `${second.caPem}${second.caPem.replace(/CERTIFICATE/g, 'PRIVATE KEY')}`,
  ]) {
    await writeFile(file, spoiled)
    time.move(31)
    t.match(
      await eventually(shown, ({ follows }) => follows.problem !== null),
      { bundle: [{}] },
      spoiled.slice(0, 9),
    )
    t.equal(await works(second, 200), 200, 'the last good one stays in force')
  }
  time.move(901)
  const jar = await signedInBySecret(gateway)
  t.match((await jar.ask('GET', '/proxy')).text, 'The trust bundle prod cannot be read')
  t.match((await jar.ask('GET', '/proxy/agents/acme%3A%3Apay')).text, 'It follows')
  t.equal((await rows()).length, 2, 'a reading without a change has no row')

  const x5c = (pem: string) => [pem.replaceAll(/-----[^-]+-----|\s/g, '')]
  const key = { kty: 'EC', use: 'x509-svid', x5c: x5c(third.caPem) }
  served = { status: 302, body: '' }
  t.equal((await gateway.admin('PUT', BUNDLE, { follow: 'partner' })).status, 200)
  t.match(
    (await eventually(shown, ({ follows }) => follows.problem !== null)).follows.problem,
    /answered 302/,
  )
  const jwt = { kty: 'EC', use: 'jwt-svid', kid: 'k' }
  served = { status: 200, body: JSON.stringify({ keys: [jwt, key], spiffe_refresh_hint: 60 }) }
  time.move(31)
  t.equal(await works(third, 200), 200, 'by the endpoint')
  t.equal(await works(second, 401), 401, 'with no grace, as its entry says')
  served = { status: 200, body: ' '.repeat(300 * 1024) }
  time.move(61)
  t.match((await eventually(shown, ({ follows }) => follows.problem !== null)).follows.problem, /larger than/)
  t.equal((await gateway.admin('PUT', BUNDLE, { trust_bundle_pem: first.caPem })).status, 200)
  t.match(await shown(), { follows: null })
  t.match((await rows()).at(-1), { follows: null })
  t.match((await gateway.admin('POST', '/v1/admin/audit/verify')).json, { ok: true })
})

await t.test(
  'H7 who begins to lead puts no CAs in force that it has read before, or elsewhere',
  async (t) => {
    const file = join(await scratch(t), 'bundle.pem')
    const [first, second] = [(await trustDomain()).caPem, (await trustDomain()).caPem]
    for (const next of [second, 'nonsense']) {
      await writeFile(file, first)
      const put: string[] = []
      let [leads, source] = [false, { file }]
      const standings = new Map<string, BundleStanding>()
      const task = followBundles({
        ...{ standings, clock: () => 0, log: pino({ enabled: false }) },
        sources: () => ({ prod: source }),
        followed: () => Promise.resolve(['prod']),
        casOf: async (pem, at) => (await trustBundleOf(pem, at)).pem,
        put: async (_name, pem) => void put.push(pem),
        leads: () => leads,
      })
      t.teardown(() => task.stop())
      const round = (isOver: (standing: BundleStanding | undefined) => boolean) =>
        eventually(
          () => task.run().then(() => standings.get('prod')),
          (standing) => isOver(standing),
        )
      await round((standing) => standing !== undefined)
      await writeFile(file, next)
      leads = true
      if (next === second) {
        await round(() => put.length > 0)
        t.same([...new Set(put)], [second], 'read again')
        source = { file: `${file}.missing` }
      }
      const before = put.length
      await round((standing) => standing?.problem != null)
      t.equal(put.length, before, 'nothing while that cannot be read')
    }
  },
)

await t.test('H7 two_person: [trust] asks a second person for each of it', async (t) => {
  const gateway = await testGateway(t, {
    files: { '70-operators.yaml': 'plugin: operators\ntwo_person: [trust]\n' },
  })
  const [spire, next] = [await trustDomain(), await trustDomain()]
  const machine = onTheMachine(gateway)
  const attached = await machine('POST', '/v1/admin/ca/attach', { ca_pem: spire.caPem, kind: 'spiffe' })
  const first = attached.json[0].digest
  await enroll(gateway, spire)
  const [alice, bob] = [
    await operatorOnTheMachine(gateway, 'alice', ['admin.settings', 'admin.enroll', 'admin.read']),
    await operatorOnTheMachine(gateway, 'bob', ['admin.settings', 'admin.enroll', 'admin.read']),
  ]
  const ask = as(gateway, alice)
  const confirm = ({ json }: { json: { proposal_id: string } }) =>
    as(gateway, bob)('POST', `/v1/admin/proposals/${json.proposal_id}/confirm`)
  const proposed = await ask('POST', '/v1/admin/ca/attach', { ca_pem: next.caPem, kind: 'spiffe' })
  t.equal(proposed.status, 202, 'attach')
  t.equal((await confirm(proposed)).status, 200)
  const [, { digest: second }] = (await gateway.admin('GET', '/v1/admin/ca')).json
  const vouch = await ask('POST', '/v1/admin/agents/acme::pay/trusted-cas', { digest: second })
  t.equal(vouch.status, 202, 'vouch')
  t.equal(await chat(gateway, await identity(next)), 401, 'it waits')
  t.equal((await confirm(vouch)).status, 200)
  t.equal(await chat(gateway, await identity(next)), 200)
  const all = await ask('POST', '/v1/admin/agents/trusted-cas', { digest: second, as: first })
  t.equal(all.status, 202, 'vouch for all')
  t.match(await confirm(all), { status: 200, json: { agents: 0 } })
  const path = `/v1/admin/agents/acme::pay/trusted-cas/${first}`
  t.equal((await ask('DELETE', path)).status, 202, 'withdraw')
  t.equal((await ask('PUT', BUNDLE, { trust_bundle_pem: next.caPem })).status, 202, 'a bundle')
  const detached = await ask('DELETE', `/v1/admin/ca/${first}`)
  t.equal(detached.status, 202, 'detach')
  t.equal((await confirm(detached)).status, 200)
  t.equal((await ask('PUT', '/v1/admin/ca/organisation', {})).status, 202, 'the names')
  t.equal((await ask('POST', '/v1/admin/agents', { agent_name: 'free' })).status, 201, 'and nothing else')
})

await t.test('H7 of a bundle the sound CAs vouch, and what is left out vouches for nobody', async (t) => {
  const gateway = await testGateway(t)
  const [old, next] = [await trustDomain(Date.now() - 3 * 86_400_000), await trustDomain()]
  const { certPem: leaf, keyPem: key } = await next.svid(ID)
  const bundle = `# ours\r\n${old.caPem}${next.caPem}${leaf}`
  const enrolled = await gateway.admin('POST', '/v1/admin/agents/enroll/spiffe', {
    ...{ agent_name: 'pay', capabilities: ['llm.chat'], trust_bundle_pem: bundle },
    ...{ svid_pem: leaf, svid_key_pem: key },
  })
  const told = [
    { line: 2, subject: 'O=acme, CN=spire', reason: 'certificate_expired' },
    { subject: 'O=acme, CN=svid', reason: 'not_a_ca' },
  ]
  t.match(enrolled, { status: 201, json: { agent_name: 'pay', passed_over: told } })
  t.equal(await chat(gateway, await identity(next)), 200)
  t.equal(await chat(gateway, await identity(old)), 401)

  const attaching = { ca_pem: bundle, kind: 'spiffe' }
  const attached = await gateway.admin('POST', '/v1/admin/ca/attach', attaching)
  t.match(attached, { status: 201, json: [{ passed_over: told }] })
  t.equal(attached.json.length, 1)
  t.equal((await gateway.admin('POST', '/v1/admin/ca/attach', attaching)).status, 409, 'nothing is new')
  const third = await trustDomain()
  const more = await gateway.admin('POST', '/v1/admin/ca/attach', {
    ...attaching,
    ca_pem: next.caPem + third.caPem,
  })
  t.match(more, { status: 201, json: [{ passed_over: [{ line: 1, reason: 'attached_already' }] }] })
  for (const ca_pem of [old.caPem, leaf, old.caPem + leaf])
    t.equal((await gateway.admin('POST', '/v1/admin/ca/attach', { ...attaching, ca_pem })).status, 422)
  const withKey = { ...attaching, ca_pem: (await trustDomain()).caPem + key }
  const refused = await gateway.admin('POST', '/v1/admin/ca/attach', withKey)
  t.match(refused, { status: 422, json: { message: /holds a private key, at line/ } })
  const rows = await gateway.rows({ limit: 100 })
  const found = rows.filter(({ detail }) => detail.passed_over !== undefined)
  t.strictSame(found.map(({ action }) => action).toSorted(), [
    'agent.enrolled_spiffe',
    'ca.attached',
    'ca.attached',
  ])
  t.notMatch(JSON.stringify(rows), /PRIVATE KEY/)
})

const OWN_ID = 'spiffe://spire.test/ns/prod/sa/own'
const quoted = (text: string): string => `'${text}'`

await t.test(
  'a CA that the owner of the database writes in place of another lets nobody in, is told, and is found',
  async (t) => {
    const gateway = await testGateway(t, { verify: false })
    const { databaseUrl } = gateway.settings
    const [spire, evil] = [await trustDomain(), await trustDomain()]
    const first = await attach(gateway, spire)
    await enroll(gateway, spire)
    const { certPem: leaf, keyPem: key } = await spire.svid(OWN_ID)
    const given = { svid_pem: leaf, svid_key_pem: key, trust_bundle_pem: spire.caPem }
    const enrolling = { agent_name: 'own', capabilities: ['llm.chat'], ...given }
    t.equal((await gateway.admin('POST', '/v1/admin/agents/enroll/spiffe', enrolling)).status, 201)
    const own = async (domain: Domain): Promise<Identity> => ({
      ...(await identity(domain, OWN_ID)),
      id: 'acme::own',
    })
    const attention = async (): Promise<string> =>
      (await (await signedInBySecret(gateway)).ask('GET', '/proxy')).text
    const verified = () => sallyport(['verify', databaseUrl])
    t.equal(await chat(gateway, await identity(spire)), 200)
    t.equal(await chat(gateway, await own(spire)), 200)
    const allowed = (await gateway.rows({ limit: 100 })).filter(({ status }) => status === 'allowed')
    for (const { detail } of allowed) t.match(detail, { authority: { anchor: first } }, 'it names the CA')
    t.equal(allowed.length, 2)
    t.match(await verified(), { code: 0, out: /not recomputable 0/ })
    t.notMatch(await attention(), /edited the database/)

    for (const [edit, back, who, what] of [
      [
        `update attached_cas set ca_pem = ${quoted(evil.caPem)}`,
        `update attached_cas set ca_pem = ${quoted(spire.caPem)}`,
        identity,
        `the attached CA ${first}`,
      ],
      [
        `update internal_agents set spiffe_bundle = ${quoted(evil.caPem)} where agent_id = 'acme::own'`,
        `update internal_agents set spiffe_bundle = ${quoted(spire.caPem)} where agent_id = 'acme::own'`,
        own,
        'the bundle of acme::own',
      ],
    ] as const) {
      await asOwner(databaseUrl, edit)
      t.equal(await chat(gateway, await who(evil)), 401, what)
      t.match(await attention(), `<li>${what}`)
      t.match(await verified(), { code: 2, out: /^BAD: /m }, 'what is edited is found')
      await asOwner(databaseUrl, back)
      t.equal(await chat(gateway, await who(spire)), 200, 'and whom it should let in, it does again')
    }
    t.equal((await verified()).code, 0)

    const digest = hash('sha256', new X509Certificate(evil.caPem).raw)
    const both = `update internal_agents set spiffe_bundle = ${quoted(evil.caPem)}, spiffe_bundle_digests = '["${digest}"]'`
    await asOwner(databaseUrl, `${both} where agent_id = 'acme::own'`)
    t.equal(await chat(gateway, await own(evil)), 200, 'with its digest next to it')
    t.equal((await verified()).code, 2, 'the tables say another one than the rows')
    const bundle = `spiffe_bundle = ${quoted(spire.caPem)}, spiffe_bundle_digests = '["${first}"]'`
    await asOwner(databaseUrl, `update internal_agents set ${bundle} where agent_id = 'acme::own'`)
    t.match(
      await verified(),
      {
        code: 5,
        out: /DISAGREES: row \S+ is allowed, but the rows before it refuse it with certificate_not_pinned/,
      },
      'and what it has let in stays found when all is as it was',
    )
    const exported = join(await scratch(t), 'export.ndjson')
    writeFileSync(exported, (await gateway.admin('GET', '/v1/admin/audit/export')).text)
    t.match(await allVerifiers(t)(exported, '--authority'), { code: 5 })
  },
)
