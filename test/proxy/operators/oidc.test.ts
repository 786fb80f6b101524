import t from 'tap'
import { ADMIN_SECRET, type TestGateway } from '../../support/gateway.ts'
import { Jar, signedInBySecret } from '../../support/oidc/jar.ts'
import { type TestProvider, testProvider } from '../../support/oidc/provider.ts'
import { Browser, gatewayOf, type SignInOptions, signedIn } from '../../support/oidc/sign-in.ts'
import { as, operatorNamed } from '../../support/operators.ts'

const ALICE = 'acme::operator::alice'
const BOB = 'acme::operator::bob'
const MAP = { 'alice@example.com': 'alice', 'bob@example.com': 'bob' }

interface Stage {
  readonly provider: TestProvider
  readonly gateway: TestGateway
}

/** A gateway on which alice enrolls and bob only looks. */
async function stage(t: Parameters<typeof testProvider>[0], options: SignInOptions = {}): Promise<Stage> {
  const provider = await testProvider(t)
  const gateway = await gatewayOf(t, provider, { ...options, oidc: { map: MAP, ...options.oidc } })
  await operatorNamed(gateway, 'alice', ['admin.read', 'admin.enroll'])
  await operatorNamed(gateway, 'bob', ['admin.read', 'admin.audit'])
  return { provider, gateway }
}

const sessionOf = (jar: Jar) => jar.ask('GET', '/v1/admin/session')

await t.test(
  'alice signs in by the identity provider, and GET /v1/admin/session says who she is',
  async (t) => {
    const { gateway, provider } = await stage(t, { session: { absolute_hours: 2 } })
    const browser = new Browser(gateway)
    const before = Date.now()
    const last = await browser.signIn('alice')
    t.equal(last.status, 200)
    t.match(last.text, '<meta http-equiv="refresh" content="0;url=/proxy">', 'a page of ours leads on')
    t.match(
      String(last.headers['set-cookie']),
      /^__Host-sallyport=[\w-]{43}; Path=\/; Secure; HttpOnly; SameSite=Strict$/,
    )
    const { json } = await sessionOf(browser.jar)
    t.match(json, { operator: ALICE, via: 'oidc', amr: ['pwd', 'otp'], csrf: /^[\w-]{43}$/ })
    t.same(json.capabilities, ['admin.read', 'admin.enroll'])
    const end = Date.parse(json.expires_at)
    t.ok(end >= before + 7_200_000 && end <= Date.now() + 7_200_000, 'after the two hours of the file')

    const [row] = await gateway.rows({ action: 'admin.sign_in' })
    t.match(row, { principal_id: ALICE, principal_type: 'operator', status: 'success' })
    t.match(row?.detail, { via: 'oidc', issuer: provider.issuer, acr: 'urn:example:two-factors' })
    t.match(row?.detail, { amr: ['pwd', 'otp'], session: /^[0-9a-f]{8}$/ })
    const { sessions } = (await gateway.admin('GET', '/v1/admin/sessions')).json
    t.match(sessions, [{ operator: ALICE, via: 'oidc', amr: ['pwd', 'otp'] }])
    const written = JSON.stringify([gateway.log, await gateway.rows()])
    for (const secret of [browser.jar.session ?? 'none', json.csrf, 'alice@example.com'])
      t.notMatch(written, secret)
  },
)

await t.test('from a further origin of administration, the provider leads back to it alone', async (t) => {
  const { gateway } = await stage(t, { settings: { MCP_PROXY_ADMIN_ORIGINS: 'https://localhost:19444' } })
  const redirectFor = async (host: string): Promise<string | null> => {
    const { headers } = await new Jar(gateway).ask('GET', '/proxy/oidc/start', { host })
    return new URL(String(headers.location)).searchParams.get('redirect_uri')
  }
  t.equal(await redirectFor('localhost:19444'), 'https://localhost:19444/proxy/oidc/callback')
  t.notMatch(await redirectFor('localhost:29444'), ':29444', 'what Host says is nobody’s origin')
})

await t.test(
  'what is asked of the provider: a code for this client, PKCE, state, nonce, claims',
  async (t) => {
    const { gateway, provider } = await stage(t)
    const browser = new Browser(gateway)
    const url = await browser.start()
    t.equal(url.origin, provider.issuer)
    const asked = Object.fromEntries(url.searchParams)
    t.match(asked, { client_id: 'sallyport', response_type: 'code', scope: 'openid email' })
    t.match(asked, { code_challenge_method: 'S256', code_challenge: /^[\w-]{43}$/ })
    t.match(asked, { state: /^[\w-]{43}$/, nonce: /^[\w-]{43}$/ })
    t.equal(asked.redirect_uri, `${gateway.url}/proxy/oidc/callback`)
    t.same(JSON.parse(asked.claims ?? ''), {
      id_token: { email: null, email_verified: null, acr: null, amr: null },
    })
    const cookie = browser.jar.cookies.get('__Host-sallyport-signin') ?? ''
    t.match(cookie, /^[\w-]+$/)
    const sealed = Buffer.from(cookie, 'base64url').toString('latin1')
    for (const value of [asked.state ?? '', asked.nonce ?? '', 'verifier']) t.notMatch(sealed, value)
    t.equal((await sessionOf(browser.jar)).status, 403, 'nobody is signed in yet')
  },
)

await t.test('a change by a session carries its token, and the row names the operator', async (t) => {
  const { gateway } = await stage(t)
  const jar = await signedIn(gateway, 'alice')
  const without = await jar.ask('POST', '/v1/admin/users', {}, { user_name: 'ada' })
  t.equal(without.status, 403)
  t.equal(without.json.reason, 'csrf_invalid')
  t.same(await gateway.rows({ action: 'user.created' }), [])

  const made = await jar.change('POST', '/v1/admin/users', { user_name: 'ada' })
  t.equal(made.status, 201, made.text)
  t.equal(made.json.created_by, ALICE)
  const [row] = await gateway.rows({ action: 'user.created', status: 'success' })
  t.match(row, { principal_id: ALICE, principal_type: 'operator', detail: { via: 'oidc' } })

  const beyond = await jar.change('PATCH', `/v1/admin/users/${made.json.principal_id}/capabilities`, {
    capabilities: ['llm.chat'],
  })
  t.equal(beyond.status, 403)
  t.equal(beyond.json.detail.required_capability, 'admin.grant')
  const [denied] = await gateway.rows({ action: 'user.capabilities_patched' })
  t.match(denied, { principal_id: ALICE, status: 'denied', detail: { via: 'oidc' } })
})

await t.test('two browsers are two operators side by side, and each row names its own', async (t) => {
  const { gateway } = await stage(t)
  const [alice, bob] = [await signedIn(gateway, 'alice'), await signedIn(gateway, 'bob')]
  t.match((await sessionOf(alice)).json, { operator: ALICE, amr: ['pwd', 'otp'] })
  t.match((await sessionOf(bob)).json, { operator: BOB, amr: ['pwd'] })
  t.equal((await alice.ask('GET', '/v1/admin/audit')).status, 403)
  t.equal((await bob.ask('GET', '/v1/admin/audit')).status, 200)
  t.equal((await bob.change('POST', '/v1/admin/users', { user_name: 'bert' })).status, 403)
  t.equal((await alice.change('POST', '/v1/admin/users', { user_name: 'ada' })).status, 201)
  const { csrf } = (await sessionOf(alice)).json
  const crossed = await bob.ask('POST', '/v1/admin/users', { 'x-csrf-token': csrf }, { user_name: 'cid' })
  t.equal(crossed.json.reason, 'csrf_invalid', 'her token is nothing beside his cookie')

  const rows = await gateway.rows({ action: 'user.created', order: 'asc' })
  t.same(
    rows.map(({ principal_id: who, status }) => `${who} ${status}`),
    [`${BOB} denied`, `${ALICE} success`],
  )
  const signIns = await gateway.rows({ action: 'admin.sign_in', order: 'asc' })
  t.same(
    signIns.map(({ principal_id: who }) => who),
    [ALICE, BOB],
  )
})

await t.test('a deactivation in the middle of a session ends it at once', async (t) => {
  const { gateway } = await stage(t)
  const [alice, bob] = [await signedIn(gateway, 'alice'), await signedIn(gateway, 'bob')]
  t.equal((await alice.ask('GET', '/v1/admin/agents')).status, 200)
  t.equal((await gateway.admin('DELETE', `/v1/admin/operators/${ALICE}`)).status, 204)
  const refused = await alice.ask('GET', '/v1/admin/agents')
  t.equal(refused.status, 403)
  t.equal(refused.json.reason, 'admin_secret_invalid', 'as if she had never signed in')
  t.equal((await alice.ask('GET', '/proxy')).headers.location, '/proxy/sign-in')
  t.equal((await bob.ask('GET', '/v1/admin/agents')).status, 200, 'nobody else’s')
  t.equal((await gateway.admin('POST', `/v1/admin/operators/${ALICE}/reactivate`)).status, 200)
  t.equal((await alice.ask('GET', '/v1/admin/agents')).status, 403, 'it does not come back with her')
})

await t.test('what is taken from an operator is gone from its session at the next request', async (t) => {
  const { gateway } = await stage(t)
  const jar = await signedIn(gateway, 'alice')
  t.equal((await jar.change('POST', '/v1/admin/users', { user_name: 'ada' })).status, 201)
  const path = `/v1/admin/operators/${ALICE}/capabilities`
  t.equal((await gateway.admin('PATCH', path, { capabilities: ['admin.read'] })).status, 200)
  t.equal((await jar.change('POST', '/v1/admin/users', { user_name: 'bob' })).status, 403)
  t.same((await sessionOf(jar)).json.capabilities, ['admin.read'])
})

await t.test('a sign-out ends the session here, and leads to the provider to end it there', async (t) => {
  const { gateway, provider } = await stage(t)
  const jar = await signedIn(gateway, 'alice')
  const cookie = jar.session ?? ''
  const home = await jar.ask('GET', '/proxy')
  t.match(home.text, ALICE)
  const [, csrf = ''] = /name="csrf" value="([^"]+)"/.exec(home.text) ?? []
  t.equal((await jar.send('/proxy/sign-out', {})).status, 403, 'a page of ours has asked for it, or nobody')
  const out = await jar.send('/proxy/sign-out', { csrf })
  t.equal(out.status, 200)
  const [, to = ''] = /url=([^"]+)"/.exec(out.text) ?? []
  const url = new URL(to)
  t.equal(url.origin, provider.issuer)
  t.equal(url.searchParams.get('client_id'), 'sallyport')
  t.equal((await fetch(url)).status, 200, 'the provider has a page there')
  t.match(String(out.headers['set-cookie']), /^__Host-sallyport=; .*Max-Age=0$/)
  t.equal(out.headers['clear-site-data'], '"cache", "cookies"')
  t.equal(jar.session, undefined)

  jar.cookies.set('__Host-sallyport', cookie)
  t.equal((await sessionOf(jar)).status, 403, 'a copy of the cookie is worth nothing')
  const [row] = await gateway.rows({ action: 'admin.signed_out' })
  t.match(row, { principal_id: ALICE, detail: { via: 'oidc', by: 'itself' } })
})

await t.test('while the provider is down, certificates, the secret and sessions work', async (t) => {
  const { gateway, provider } = await stage(t)
  const certificate = as(gateway, await operatorNamed(gateway, 'carol', ['admin.read']))
  const jar = await signedIn(gateway, 'alice')
  const waiting = new Browser(gateway)
  const back = await waiting.atProvider(await waiting.start(), 'bob')
  await provider.stop()
  const refused = await waiting.callback(back)
  t.equal(refused.status, 503, 'the code cannot be redeemed')
  t.match(refused.text, 'The identity provider is not available now. Try again in a minute.')
  t.equal(refused.headers['retry-after'], '60')
  t.notMatch(refused.text, provider.issuer)
  t.equal(waiting.jar.session, undefined)

  t.equal((await certificate('GET', '/v1/admin/agents')).status, 200)
  t.equal((await gateway.admin('GET', '/v1/admin/agents')).status, 200)
  t.equal((await sessionOf(await signedInBySecret(gateway))).json.operator, 'admin')
  t.equal((await jar.change('POST', '/v1/admin/users', { user_name: 'ada' })).status, 201)
  const { csrf } = (await sessionOf(jar)).json
  t.ok((await jar.send('/proxy/sign-out', { csrf })).status < 400, 'and a sign-out is one')
  t.equal(jar.session, undefined)
})

await t.test('a provider that was down is asked again once a minute, whoever wants to sign in', async (t) => {
  let now = 0
  const provider = await testProvider(t)
  const oidc = { map: { 'alice@example.com': 'viewer' } }
  // It is there from its registration on.
  const late = { issuer: provider.issuer, register: () => Promise.resolve() }
  const gateway = await gatewayOf(t, late, { oidc, monotonic: () => now })
  const start = () => new Jar(gateway).ask('GET', '/proxy/oidc/start')
  t.equal(provider.asked.size, 0, 'it is asked for nothing before somebody signs in')
  for (let stranger = 0; stranger < 3; stranger += 1) {
    const { status, headers, text } = await start()
    t.equal(status, 503)
    t.match(text, 'is not available now')
    t.match(headers['content-type'], 'text/html')
  }
  t.same([...provider.asked.values()], [1])
  await provider.register(gateway)
  t.equal((await start()).status, 503, 'nobody asks it in this minute')
  now += 60_000
  t.equal((await start()).status, 303)
  t.same((await sessionOf(await signedIn(gateway, 'alice'))).json.capabilities, ['admin.read'])
})

await t.test('without a provider nobody signs in by one, and the page offers none', async (t) => {
  const provider = await testProvider(t)
  const files = { '70-operators.yaml': 'plugin: operators\n' }
  const gateway = await gatewayOf(t, provider, { files })
  const jar = new Jar(gateway)
  for (const path of ['/proxy/oidc/start', '/proxy/oidc/callback?code=a&state=b'])
    t.equal((await jar.ask('GET', path)).status, 404, path)
  t.notMatch((await jar.ask('GET', '/proxy/sign-in')).text, 'Sign in with')
  t.equal((await jar.send('/proxy/sign-in', { secret: ADMIN_SECRET })).status, 303)
  t.equal(provider.asked.size, 0)
})
