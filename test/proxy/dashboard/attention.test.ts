import { generateKeyPairSync } from 'node:crypto'
import t, { type Test } from 'tap'
import { signedInAs } from '../../support/dashboard/signed-in.ts'
import { trustDomain } from '../../support/foreign.ts'
import { testGateway } from '../../support/gateway.ts'
import { type Jar, signedInBySecret } from '../../support/oidc/jar.ts'
import { operatorNamed } from '../../support/operators.ts'

t.setTimeout(120_000)

const CHAT = { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }] }
const DAY_MS = 86_400_000

const namesIn = (page: string): readonly string[] =>
  [...page.matchAll(/<a class="row"[^>]*>([^<]+)</g)].map(([, name = '']) => name)

const found = async (t: Test, jar: Jar, q: string): Promise<readonly string[]> => {
  const { status, text } = await jar.ask('GET', `/proxy/agents?${new URLSearchParams({ q }).toString()}`)
  t.equal(status, 200, q)
  return namesIn(text)
}

await t.test(
  'while proofs are optional, whoever has no proof key is counted on one card, which leads to the search',
  async (t) => {
    const gateway = await testGateway(t)
    const jar = await signedInBySecret(gateway)
    t.match((await jar.ask('GET', '/proxy')).text, 'All is well')
    for (const name of ['a', 'b', 'gone']) await gateway.enroll(name, [])
    await gateway.admin('DELETE', '/v1/admin/agents/acme::gone')
    await gateway.admin('POST', '/v1/admin/users', { user_name: 'ada' })
    const { text } = await jar.ask('GET', '/proxy')
    const [, link = ''] = /href="([^"]+)">2 agents</.exec(text) ?? []
    t.match(text, '>1 user<')
    t.notMatch(text, 'workload<')
    t.same(namesIn((await jar.ask('GET', link)).text), ['b', 'a'])
    t.same(await found(t, jar, 'is:keyless is:inactive'), ['gone'])
    const jwk = generateKeyPairSync('ed25519').publicKey.export({ format: 'jwk' })
    const set = await gateway.admin('POST', '/v1/admin/agents/acme::a/dpop-jwk', jwk)
    t.equal(set.status, 200, set.text)
    t.same(await found(t, jar, 'is:keyless is:active'), ['b'])
    t.match((await jar.ask('GET', '/proxy')).text, '>1 agent<')
  },
)

await t.test('where proofs are required there is no such card: nobody calls without one', async (t) => {
  const gateway = await testGateway(t, { settings: { MCP_PROXY_EGRESS_DPOP_MODE: 'required' } })
  await gateway.enroll('a', [])
  t.match((await (await signedInBySecret(gateway)).ask('GET', '/proxy')).text, 'All is well')
})

await t.test(
  'denied:today and denied:1d find who was refused then, and tell it to whoever may read the ledger alone',
  async (t) => {
    const noon = Math.floor(Date.now() / DAY_MS) * DAY_MS + DAY_MS / 2
    let at = noon - DAY_MS
    const gateway = await testGateway(t, { clock: () => at })
    const [none, bot] = [await gateway.enroll('none', []), await gateway.enroll('bot', ['llm.chat'])]
    const call = (who: typeof none) => gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })
    t.equal((await call(none)).status, 403)
    at = noon
    t.equal((await call(bot)).status, 200)
    const jar = await signedInBySecret(gateway)
    for (const [q, names] of [
      ['denied:today', []],
      ['denied:23h', []],
      ['denied:2d', ['none']],
      ['denied:<2d bot', []],
      ['denied:2d is:empty', ['none']],
    ] as const)
      t.same(await found(t, jar, q), names, q)
    await gateway.admin('PATCH', '/v1/admin/agents/acme::bot/capabilities', { capabilities: [] })
    t.equal((await call(bot)).status, 403)
    t.same(await found(t, jar, 'denied:today'), ['bot'])
    t.same(await found(t, jar, 'denied:1h'), ['bot'])
    for (const wrong of ['denied:soon', 'denied:']) {
      const { status } = await gateway.admin('GET', `/v1/admin/agents?q=${wrong}`)
      t.equal(status, 422, wrong)
    }
    const reader = await operatorNamed(gateway, 'reader', ['admin.read'])
    const own = await signedInAs(gateway, reader)
    const refused = await own.ask('GET', '/proxy/agents?q=denied:today')
    t.equal(refused.status, 403)
    t.match(refused.text, 'admin.audit')
    t.equal((await own.ask('GET', '/v1/admin/users?q=denied:today')).status, 403)
    t.equal((await own.ask('GET', '/proxy/agents?q=is:keyless')).status, 200)
  },
)

await t.test(
  'an attached CA that ends is shown, and an SVID once it has ended: until then its issuer renews it',
  async (t) => {
    let at = Date.now()
    const gateway = await testGateway(t, { clock: () => at })
    const spire = await trustDomain()
    await gateway.admin('POST', '/v1/admin/ca/attach', { ca_pem: spire.caPem, kind: 'spiffe' })
    const { certPem, keyPem } = await spire.svid('spiffe://spire.test/bot')
    const body = { agent_name: 'bot', svid_pem: certPem, svid_key_pem: keyPem }
    t.equal((await gateway.admin('POST', '/v1/admin/agents/enroll/spiffe', body)).status, 201)
    const attention = async () => (await (await signedInBySecret(gateway)).ask('GET', '/proxy')).text
    const before = await attention()
    t.match(before, 'Attached CAs that end within 30 days')
    t.notMatch(before, 'Certificates that end within 30 days')
    // Certificates count in seconds: an hour less, so that it is one day for sure.
    at += 3 * DAY_MS - 3_600_000
    t.match(
      await attention(),
      /acme%3A%3Abot">bot<\/a> <time[^>]*>1 d ago<\/time> <span class="faint">its SVID/,
    )
    t.match((await (await signedInBySecret(gateway)).ask('GET', '/proxy/pki')).text, 'ends soon')
  },
)
