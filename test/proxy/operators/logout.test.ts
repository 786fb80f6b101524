import { type JWTPayload, SignJWT, UnsecuredJWT } from 'jose'
import t from 'tap'
import type { Answered, TestGateway } from '../../support/gateway.ts'
import { spoiledStage } from '../../support/oidc/attempts.ts'
import { type Jar, signedInBySecret } from '../../support/oidc/jar.ts'
import { CLIENT_ID, CLIENT_SECRET, testProvider } from '../../support/oidc/provider.ts'
import { Browser, gatewayOf, signedIn } from '../../support/oidc/sign-in.ts'
import { type SpoiledProvider, signingKey } from '../../support/oidc/spoiled-provider.ts'

const PATH = '/proxy/oidc/backchannel-logout'
const ALICE = 'acme::operator::alice-example.com'
const EVENT = 'http://schemas.openid.net/event/backchannel-logout'
const NOW_S = (): number => Math.floor(Date.now() / 1000)

const isSignedIn = async (jar: Jar): Promise<boolean> =>
  (await jar.ask('GET', '/v1/admin/session')).status === 200

const post = (gateway: TestGateway, body: string, type = 'application/x-www-form-urlencoded') =>
  gateway.call(null, 'POST', PATH, { headers: { 'content-type': type }, body })

const logout = (gateway: TestGateway, token: string): Promise<Answered> =>
  post(gateway, new URLSearchParams({ logout_token: token }).toString())

/** The claims of a logout token that holds (OpenID Connect Back-Channel Logout 1.0 §2.4). */
let made = 0
function claimsOf({ issuer }: SpoiledProvider, more: JWTPayload): JWTPayload {
  made += 1
  const times = { iat: NOW_S(), exp: NOW_S() + 120 }
  return { iss: issuer, aud: CLIENT_ID, jti: `logout-${made}`, events: { [EVENT]: {} }, ...times, ...more }
}

await t.test('who signs out at the provider is signed out here, and the other browser is not', async (t) => {
  const provider = await testProvider(t)
  const map = { 'alice@example.com': 'viewer', 'bob@example.com': 'viewer' }
  const gateway = await gatewayOf(t, provider, { oidc: { map } })
  const [one, other] = [new Browser(gateway), new Browser(gateway)]
  await one.signIn('alice')
  await other.signIn('alice')
  const bob = await signedIn(gateway, 'bob')
  await one.endAtProvider(new URL(`${provider.issuer}/session/end?client_id=${CLIENT_ID}`))
  t.notOk(await isSignedIn(one.jar), 'at the next request')
  t.ok(await isSignedIn(other.jar), 'another session with the provider')
  t.ok(await isSignedIn(bob))
  const [row, ...more] = await gateway.rows({ action: 'admin.signed_out' })
  t.match(row, { principal_id: ALICE, principal_type: 'operator', status: 'success' })
  t.match(row?.detail, { via: 'oidc', by: 'provider', issuer: provider.issuer, session: /^[0-9a-f]{8}$/ })
  t.same(more, [])
  t.equal((await one.signIn('alice')).status, 200, 'and signs in again')
})

await t.test(
  'a sign-out here leads to the page of the provider, whose logout then finds nothing',
  async (t) => {
    const provider = await testProvider(t)
    const gateway = await gatewayOf(t, provider, { oidc: { map: { 'alice@example.com': 'viewer' } } })
    const browser = new Browser(gateway)
    await browser.signIn('alice')
    const { csrf } = (await browser.jar.ask('GET', '/v1/admin/session')).json
    const out = await browser.jar.send('/proxy/sign-out', { csrf })
    const [, to = ''] = /url=([^"]+)"/.exec(out.text) ?? []
    await browser.endAtProvider(new URL(to))
    const rows = await gateway.rows({ action: 'admin.signed_out' })
    t.same(
      rows.map(({ detail }) => detail.by),
      ['itself'],
    )
  },
)

await t.test('§2.5 a logout by sid ends that session, by sub all of a person, by both the one', async (t) => {
  const { gateway, provider } = await spoiledStage(t)
  const person = provider.person
  const inSession = (sid: string): Promise<Jar> => {
    provider.person = { ...person, sid }
    return signedIn(gateway, 'alice')
  }
  const [first, second, third] = [await inSession('s1'), await inSession('s1'), await inSession('s2')]
  const secret = await signedInBySecret(gateway)
  const tell = async (more: JWTPayload): Promise<void> => {
    const told = await logout(gateway, await provider.sign(claimsOf(provider, more), { typ: 'logout+jwt' }))
    t.equal(told.status, 200, told.text)
    t.equal(told.headers['cache-control'], 'no-store')
  }
  await tell({ sid: 's3' })
  await tell({ sub: 'bob' })
  await tell({ sub: 'bob', sid: 's1' })
  for (const jar of [first, second, third]) t.ok(await isSignedIn(jar), 'what names nobody here ends nothing')
  await tell({ sid: 's1' })
  t.same([await isSignedIn(first), await isSignedIn(second)], [false, false])
  t.ok(await isSignedIn(third))
  const fourth = await inSession('s4')
  await tell({ sub: 'alice', sid: 's2' })
  t.same([await isSignedIn(third), await isSignedIn(fourth)], [false, true])
  const fifth = await inSession('s5')
  await tell({ sub: 'alice' })
  t.same([await isSignedIn(fourth), await isSignedIn(fifth)], [false, false])
  t.ok(await isSignedIn(secret), 'which is nobody’s there')
  const rows = await gateway.rows({ action: 'admin.signed_out' })
  t.equal(rows.length, 5, 'a row for each session')
  for (const row of rows) t.match(row, { principal_id: ALICE, detail: { by: 'provider' } })
})

await t.test('§2.6 a logout token that does not hold ends nothing', async (t) => {
  const { gateway, provider } = await spoiledStage(t)
  provider.person = { ...provider.person, sid: 's1' }
  const jar = await signedIn(gateway, 'alice')
  const whole = { sub: 'alice', sid: 's1' }
  const claims = (more: JWTPayload = {}): JWTPayload => claimsOf(provider, { ...whole, ...more })
  const without = (name: string): JWTPayload => {
    const { [name]: _, ...others } = claims()
    return others
  }
  const { sub: _sub, sid: _sid, ...nobody } = claims()
  const stranger = await signingKey('two')
  const sameName = await signingKey('one')
  const idToken = { iss: provider.issuer, aud: CLIENT_ID, iat: NOW_S(), exp: NOW_S() + 60 }
  const shared = new SignJWT(claims()).setProtectedHeader({ alg: 'HS256', kid: 'one' })
  const signed: Readonly<Record<string, JWTPayload>> = {
    'a nonce': claims({ nonce: 'a' }),
    'an empty nonce': claims({ nonce: '' }),
    'no events': without('events'),
    'another event': claims({ events: { 'http://schemas.openid.net/event/other': {} } }),
    'an event that is none': claims({ events: { [EVENT]: true } }),
    'events as a list': claims({ events: [EVENT] }),
    'another audience': claims({ aud: 'another-client' }),
    'no audience': without('aud'),
    'another issuer': claims({ iss: 'https://login.evil.example' }),
    'another tenant': claims({ iss: `${provider.issuer}/tenant-b` }),
    'no issuer': without('iss'),
    expired: claims({ exp: NOW_S() - 31 }),
    'issued long ago': claims({ iat: NOW_S() - 200, exp: NOW_S() + 3600 }),
    'issued in the future': claims({ iat: NOW_S() + 200, exp: NOW_S() + 3600 }),
    'no time of issue': without('iat'),
    'no jti': without('jti'),
    'an empty jti': claims({ jti: '' }),
    'a jti that is too long': claims({ jti: 'a'.repeat(300) }),
    nobody,
    'an empty sub': claims({ sub: '' }),
    'an empty sid': claims({ sid: '' }),
    'an ID token': { ...idToken, ...whole, nonce: 'a' },
    'an ID token without a nonce': { ...idToken, ...whole, jti: 'a' },
  }
  const tokens: Record<string, string> = {
    'alg none': new UnsecuredJWT(claims()).encode(),
    'HS256 with the client secret': await shared.sign(Buffer.from(CLIENT_SECRET)),
    'an unknown key': await provider.sign(claims(), {}, stranger),
    'a key of the same name': await provider.sign(claims(), {}, sameName),
    'no signature': (await provider.sign(claims())).replace(/[^.]+$/, ''),
    'no token': 'logout',
    nothing: '',
  }
  for (const [what, each] of Object.entries(signed)) tokens[what] = await provider.sign(each)
  for (const [what, token] of Object.entries(tokens)) {
    const refused = await logout(gateway, token)
    t.equal(refused.status, 400, what)
    t.match(refused.json, { error: 'invalid_request', reason: 'logout_token_invalid' }, what)
    t.ok(await isSignedIn(jar), what)
  }
  t.same(await gateway.rows({ action: 'admin.signed_out' }), [])
  t.equal((await logout(gateway, await provider.sign(claims()))).status, 200, 'one that holds')
  t.notOk(await isSignedIn(jar))
})

await t.test('a token of the provider whose times are off names the clock and the difference', async (t) => {
  const { gateway, provider, attempt } = await spoiledStage(t)
  const far = { exp: NOW_S() + 3600 }
  const off = {
    'was issued 20\\d s ahead of': { iat: NOW_S() + 205, ...far },
    'was issued 20\\d s behind': { iat: NOW_S() - 205, ...far },
    'expired 20\\d s ago by': { exp: NOW_S() - 203 },
    'is not valid for another (?:19|20)\\d s by': { nbf: NOW_S() + 205, ...far },
  }
  for (const [words, times] of Object.entries(off)) {
    const said = new RegExp(`^The token of the identity provider ${words} the clock of this gateway \\(20`)
    const token = await provider.sign(claimsOf(provider, { sub: 'alice', ...times }))
    const refused = await logout(gateway, token)
    t.match(refused.json, { error_description: said, reason: 'logout_token_invalid' }, words)
    t.ok(Math.abs(refused.json.clock_difference_s) > 190)
    // An ID token may be older than a logout token.
    const claims = words.includes('behind') ? { ...times, iat: NOW_S() - 7205 } : times
    const { last } = await attempt({ claims: (honest) => ({ ...honest, ...claims }) })
    t.equal(last.status, 403, words)
    t.match(last.text, /The token of the identity provider .* the clock of this gateway \(.* Set the clock/)
  }
  const stranger = await provider.sign(claimsOf(provider, { exp: 1 }), {}, await signingKey('one'))
  t.equal(
    (await logout(gateway, stranger)).json.message,
    'The logout token is not valid. Send a new one, made for this client.',
    'of nobody’s key',
  )
})

await t.test('§2.6 a logout token is taken once, also where it comes several times at once', async (t) => {
  const { gateway, provider } = await spoiledStage(t)
  const token = await provider.sign(claimsOf(provider, { sub: 'alice' }))
  const first = await signedIn(gateway, 'alice')
  const answers = await Promise.all([1, 2, 3].map(() => logout(gateway, token)))
  const statuses = answers.map(({ status }) => status)
  t.same(
    statuses.toSorted((one, other) => one - other),
    [200, 400, 400],
  )
  t.notOk(await isSignedIn(first))
  const second = await signedIn(gateway, 'alice')
  t.equal((await logout(gateway, token)).status, 400)
  t.ok(await isSignedIn(second), 'a copy of it ends no later session')
  t.equal((await gateway.rows({ action: 'admin.signed_out' })).length, 1)
})

await t.test(
  'what is no form with one logout token is refused, and costs the provider nothing',
  async (t) => {
    const { gateway, provider } = await spoiledStage(t)
    const token = await provider.sign(claimsOf(provider, { sub: 'alice' }))
    const jar = await signedIn(gateway, 'alice')
    const before = [...provider.asked.values()]
    for (const [body, type] of [
      [JSON.stringify({ logout_token: token }), 'application/json'],
      [`logout_token=${token}&logout_token=${token}`, undefined],
      [`token=${token}`, undefined],
      [`logout_token=${'a'.repeat(200_000)}`, undefined],
    ] as const) {
      const refused = await post(gateway, body, type)
      t.ok([400, 413].includes(refused.status), `${refused.status} ${body.slice(0, 20)}`)
      t.equal(refused.json.error, 'invalid_request')
    }
    const query = await gateway.call(null, 'POST', `${PATH}?logout_token=${token}`)
    t.equal(query.status, 400, 'nothing is read from the address')
    t.not((await gateway.call(null, 'GET', `${PATH}?logout_token=${token}`)).status, 200)
    const foreign = await provider.sign(claimsOf(provider, { iss: 'https://login.evil.example' }))
    t.equal((await logout(gateway, foreign)).status, 400)
    t.ok(await isSignedIn(jar))
    t.same([...provider.asked.values()], before)
  },
)

await t.test('while the provider is down no logout is believed, and it may be sent again', async (t) => {
  const { gateway, provider, pass } = await spoiledStage(t)
  const jar = await signedIn(gateway, 'alice')
  const token = await provider.sign(claimsOf(provider, { sub: 'alice' }))
  pass(3_600_000)
  provider.spoiled = { answer: (_, res) => Boolean(res.writeHead(503).end()) }
  const refused = await logout(gateway, token)
  t.equal(refused.status, 503)
  t.equal(refused.json.error, 'temporarily_unavailable')
  t.ok(await isSignedIn(jar))
  provider.spoiled = {}
  pass(60_000)
  t.equal((await logout(gateway, token)).status, 200)
  t.notOk(await isSignedIn(jar))
})
