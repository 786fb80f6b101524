import { generateKeyPairSync } from 'node:crypto'
import t from 'tap'
import { personOf } from '../../proxy/operators/oidc/person.ts'
import { operatorsOptions } from '../../proxy/operators/options.ts'
import { isNobody, spoiledStage } from '../support/oidc/attempts.ts'
import { Jar } from '../support/oidc/jar.ts'
import { CLIENT_ID, CLIENT_SECRET } from '../support/oidc/provider.ts'
import { Browser, signedIn } from '../support/oidc/sign-in.ts'
import { type Spoiled, signingKey } from '../support/oidc/spoiled-provider.ts'

const OPERATOR = 'acme::operator::alice-example.com'
const MINUTE_MS = 60_000

await t.test('another tenant is another issuer, or has another claim: neither lets anybody in', async (t) => {
  const { provider, gateway } = await spoiledStage(t, {
    oidc: { claim: 'hd', map: { 'example.com': 'viewer' } },
  })
  provider.person = { sub: 'carol', email: 'carol@example.com', email_verified: true, hd: 'evil.example' }
  const refused = new Browser(gateway)
  await isNobody(t, { browser: refused, last: await refused.signIn('carol') }, 403, 'another hd')
  provider.person = { sub: 'dave', email: 'dave@example.com', email_verified: true }
  const without = new Browser(gateway)
  await isNobody(t, { browser: without, last: await without.signIn('dave') }, 403, 'no hd')
  for (const row of await gateway.rows({ action: 'admin.sign_in_refused' }))
    t.match(row, { status: 'denied', principal_id: null, detail: { via: 'oidc', reason: 'not_mapped' } })
  t.equal((await gateway.rows({ action: 'admin.sign_in_refused' })).length, 2)
  provider.person = { ...provider.person, hd: 'example.com' }
  t.ok((await signedIn(gateway, 'dave')).session)
})

await t.test('a claim of one value signs nobody in as a list; one of groups may be either', async (t) => {
  const { provider, gateway } = await spoiledStage(t)
  const alice = { sub: 'alice', email: 'alice@example.com', email_verified: true }
  for (const email of [[alice.email], ['mallory@example.com', alice.email], { 0: alice.email }]) {
    provider.person = { ...alice, email }
    const browser = new Browser(gateway)
    await isNobody(t, { browser, last: await browser.signIn('alice') }, 403, JSON.stringify(email))
  }
  provider.person = alice
  t.ok((await signedIn(gateway, 'alice')).session)

  const valuesOf = (claim: string, value: unknown) => {
    const oidc = {
      issuer: provider.issuer,
      client_id: CLIENT_ID,
      client_secret: CLIENT_SECRET,
      map: {},
      claim,
    }
    const options = operatorsOptions.parse({ oidc }).oidc
    t.ok(options)
    return (
      options && personOf({ sub: 'alice', email_verified: true, [claim]: value } as never, options).values
    )
  }
  for (const claim of ['sub', 'name', 'preferred_username', 'upn', 'oid', 'hd', 'phone_number', 'sid']) {
    t.same(valuesOf(claim, 'staff'), ['staff'], claim)
    t.same(valuesOf(claim, ['staff']), [], `${claim} as a list`)
  }
  for (const claim of ['groups', 'roles', 'https://example.com/teams']) {
    t.same(valuesOf(claim, 'staff'), ['staff'], claim)
    t.same(valuesOf(claim, ['staff', 'ops', ['nested']]), ['staff', 'ops'], `${claim} as a list`)
  }
})

await t.test('a discovery document that is another’s, or leads elsewhere, signs nobody in', async (t) => {
  const { provider, gateway, pass } = await spoiledStage(t)
  const { issuer } = provider
  const documents: Readonly<Record<string, Record<string, unknown>>> = {
    'another issuer': { issuer: 'https://login.evil.example' },
    'the issuer with a slash more': { issuer: `${issuer}/` },
    'a tenant of it': { issuer: `${issuer}/{tenantid}` },
    'no issuer': { issuer: undefined },
    'keys over plain http from elsewhere': { jwks_uri: 'http://keys.evil.example/jwks' },
    'codes over plain http to elsewhere': { token_endpoint: 'http://169.254.169.254/token' },
    'people to a script': { authorization_endpoint: 'javascript:alert(1)' },
    'people to a file after their sign-out': { end_session_endpoint: 'file:///etc/passwd' },
    'no keys': { jwks_uri: undefined },
    'no place for codes': { token_endpoint: undefined },
  }
  const start = () => new Jar(gateway).ask('GET', '/proxy/oidc/start')
  for (const [what, spoiled] of Object.entries(documents)) {
    pass(60 * MINUTE_MS)
    provider.spoiled = { discovery: (document) => ({ ...document, ...spoiled }) }
    const { status, headers, text } = await start()
    t.equal(status, 503, what)
    t.equal(headers.location, undefined, what)
    t.equal(headers['set-cookie'], undefined, what)
    t.notMatch(text, /evil|169\.254/, what)
  }
  const logged = gateway.log.map((line) => JSON.stringify(line))
  for (const named of ['https://login.evil.example', `${issuer}/`])
    t.ok(
      logged.some((line) => line.includes(`it calls itself \\"${named}\\": if that is right, write it so`)),
      `the log names ${named} and the setting`,
    )
  const answers: Readonly<Record<string, Spoiled['answer']>> = {
    'a redirect': (_, res) => Boolean(res.writeHead(302, { location: `${issuer}/elsewhere` }).end()),
    'half a megabyte': (_, res) => Boolean(res.writeHead(200).end('a'.repeat(500_000))),
    'no JSON': (_, res) => Boolean(res.writeHead(200, { 'content-type': 'application/json' }).end('{')),
    'a page': (_, res) => Boolean(res.writeHead(200, { 'content-type': 'text/html' }).end('<html>')),
    'nothing at all': (_, res) => Boolean(res.destroy()),
  }
  for (const [what, answer] of Object.entries(answers)) {
    pass(60 * MINUTE_MS)
    provider.spoiled = answer ? { answer } : {}
    t.equal((await start()).status, 503, what)
  }
  t.equal(provider.asked.get('/elsewhere'), undefined)
  provider.spoiled = {}
  pass(60 * MINUTE_MS)
  t.equal((await start()).status, 303)
})

await t.test('codes go where the discovery document said, whatever is answered there', async (t) => {
  const { provider, attempt } = await spoiledStage(t)
  const only =
    (path: string, answer: NonNullable<Spoiled['answer']>): Spoiled['answer'] =>
    (asked, res) =>
      asked === path && answer(asked, res)
  const spoils: readonly (readonly [string, number, Spoiled['answer']])[] = [
    [
      'a redirect',
      503,
      only('/token', (_, res) => Boolean(res.writeHead(307, { location: '/elsewhere' }).end())),
    ],
    ['a failure', 503, only('/token', (_, res) => Boolean(res.writeHead(500).end()))],
    ['keys that are none', 503, only('/jwks', (_, res) => Boolean(res.writeHead(200).end('{"keys":1}')))],
    ['no keys', 503, only('/jwks', (_, res) => Boolean(res.writeHead(404).end('{}')))],
  ]
  for (const [what, status, answer] of spoils)
    await isNobody(t, await attempt(answer ? { answer } : {}), status, what)
  t.equal(provider.asked.get('/elsewhere'), undefined)
  const { browser } = await attempt()
  t.equal((await browser.jar.ask('GET', '/v1/admin/session')).json.operator, OPERATOR)
})

await t.test(
  'new keys of the provider are followed, withdrawn ones no more, strangers’ cost little',
  async (t) => {
    const { provider, gateway, pass } = await spoiledStage(t)
    const [old] = provider.keys
    await signedIn(gateway, 'alice')
    t.equal(provider.asked.get('/jwks'), 1)
    const next = await signingKey('two')
    provider.keys = [next, old]
    pass(MINUTE_MS)
    t.ok((await signedIn(gateway, 'alice')).session, 'by the new key')
    t.equal(provider.asked.get('/jwks'), 2)

    const stranger = await signingKey('three')
    provider.spoiled = { idToken: (claims) => provider.sign(claims, {}, stranger) }
    for (let attempt = 0; attempt < 3; attempt += 1)
      t.equal((await new Browser(gateway).signIn('alice')).status, 403)
    t.equal(provider.asked.get('/jwks'), 2, 'nobody makes the gateway ask twice in a minute')

    provider.keys = [next]
    pass(60 * MINUTE_MS)
    provider.spoiled = { idToken: (claims) => provider.sign(claims, {}, old) }
    const browser = new Browser(gateway)
    await isNobody(t, { browser, last: await browser.signIn('alice') }, 403, 'by the key that was withdrawn')
    provider.spoiled = {}
    t.ok((await signedIn(gateway, 'alice')).session)
  },
)

await t.test('a key of the provider that is unusable costs nobody who is signed by another', async (t) => {
  const { provider, gateway, attempt } = await spoiledStage(t)
  const usable = provider.keys.map(({ publicJwk }) => publicJwk)
  const small = generateKeyPairSync('rsa', { modulusLength: 1024 }).publicKey.export({ format: 'jwk' })
  const [other] = [(await signingKey('one')).publicJwk]
  const odd = [
    null,
    'key',
    {},
    { kty: 'XMSS', kid: 'two' },
    { kty: 'EC', crv: 'P-256', kid: 'three', x: 'AA' },
    // Each of these is named as the one that has signed.
    { ...usable[0], crv: 'P-999' },
    { ...usable[0], x: 'AA', x5c: ['nonsense'] },
    { ...usable[0], use: 'enc' },
    { ...usable[0], alg: 'ES999' },
    { ...usable[0], key_ops: 'verify' },
    { ...small, kid: 'one' },
    { kty: 'oct', kid: 'one', k: 'AAAA' },
  ]
  const publish = (keys: readonly unknown[]): Spoiled => ({
    answer: (path, res) => {
      if (path !== '/jwks') return false
      res.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ keys }))
      return true
    },
  })
  t.match((await attempt(publish([...odd, ...usable]))).browser.jar.session, /./)
  const told = gateway.log.flatMap((line) => (line as { keys?: string[] }).keys ?? []).join('\n')
  for (const said of [
    'a value is no key',
    'the key "two" cannot be read',
    'the key "one" is RSA of 1024 bits',
  ])
    t.match(told, said, 'the log names what is left out')
  t.notMatch(told, 'enc')
  t.match((await attempt(publish([other, ...usable]))).browser.jar.session, /./, 'two keys of one name')
  const unnamed = [other, ...usable].map((key) => ({ ...key, kid: undefined }))
  provider.spoiled = {}
  t.match(
    (await attempt({ ...publish(unnamed), idToken: (claims) => provider.sign(claims, { kid: undefined }) }))
      .browser.jar.session,
    /./,
    'two keys without a name',
  )
  await isNobody(t, await attempt(publish(odd)), 403, 'no key of its own')
})

await t.test('a client secret that the provider’s errors repeat is in no page, row or line', async (t) => {
  const { gateway, attempt } = await spoiledStage(t)
  const basic = Buffer.from(`${CLIENT_ID}:${CLIENT_SECRET}`).toString('base64')
  const said = `client ${CLIENT_SECRET} Basic ${basic} ${encodeURIComponent(CLIENT_SECRET)}`
  const pages: string[] = []
  const told = {
    error: 'invalid_client',
    error_description: said,
    error_uri: `https://x.test/${CLIENT_SECRET}`,
  }
  for (const failing of ['/token', '/jwks', '/.well-known/openid-configuration'])
    for (const [status, type, body] of [
      [401, 'application/json', JSON.stringify(told)],
      [200, 'application/json', JSON.stringify(told)],
      [400, 'text/html', `<p>${said}</p>`],
      [500, 'text/plain', said],
    ] as const) {
      const answer: Spoiled['answer'] = (path, res) => {
        if (path !== failing) return false
        const challenge = { 'www-authenticate': `Basic realm="${CLIENT_SECRET}"` }
        res.writeHead(status, { 'content-type': type, ...(status === 401 && challenge) }).end(body)
        return true
      }
      // Without a discovery document it does not begin: the error holds the page.
      const ended = await attempt({ answer }).catch((error: Error) => error)
      if (ended instanceof Error) pages.push(ended.message)
      else {
        t.equal(ended.browser.jar.session, undefined, `${failing} ${status}`)
        pages.push(ended.last.text, JSON.stringify(ended.last.headers))
      }
    }
  const all = JSON.stringify([pages, gateway.log, await gateway.rows({ limit: 100 })])
  for (const secret of [CLIENT_SECRET, basic]) t.notOk(all.includes(secret))
})
