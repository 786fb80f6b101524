import { type CryptoKey, exportSPKI, type JWTPayload, SignJWT, UnsecuredJWT } from 'jose'
import t from 'tap'
import type { TestGateway } from '../support/gateway.ts'
import { isNobody, spoiledStage } from '../support/oidc/attempts.ts'
import { CLIENT_ID, CLIENT_SECRET } from '../support/oidc/provider.ts'
import { type Spoiled, signingKey } from '../support/oidc/spoiled-provider.ts'

const OPERATOR = 'acme::operator::alice-example.com'

const REASON = 'the answer of the identity provider is not valid'
const reasons = ({ log }: TestGateway) => log.filter(({ msg }) => msg === REASON)

const NOW_S = (): number => Math.floor(Date.now() / 1000)

/** ID tokens that the provider itself has signed, and that are not for this sign-in. */
const CLAIMS: Readonly<Record<string, (claims: JWTPayload) => JWTPayload>> = {
  'another issuer': (claims) => ({ ...claims, iss: 'https://login.evil.example' }),
  'the issuer with a slash more': (claims) => ({ ...claims, iss: `${claims.iss}/` }),
  'another tenant of the same host': (claims) => ({ ...claims, iss: `${claims.iss}/tenant-b` }),
  'no issuer': ({ iss: _, ...claims }) => claims,
  'another audience': (claims) => ({ ...claims, aud: 'another-client' }),
  'another client’s ID token': (claims) => ({ ...claims, aud: ['another-client'], azp: 'another-client' }),
  'two audiences, and made for the other': (claims) => ({
    ...claims,
    aud: [CLIENT_ID, 'another-client'],
    azp: 'another-client',
  }),
  'two audiences, and nobody says for whom': (claims) => ({ ...claims, aud: [CLIENT_ID, 'another-client'] }),
  'no audience': ({ aud: _, ...claims }) => claims,
  'another nonce': (claims) => ({ ...claims, nonce: 'another' }),
  'an empty nonce': (claims) => ({ ...claims, nonce: '' }),
  'no nonce': ({ nonce: _, ...claims }) => claims,
  expired: (claims) => ({ ...claims, exp: NOW_S() - 31 }),
  'no expiry': ({ exp: _, ...claims }) => claims,
  'issued far in the future': (claims) => ({ ...claims, iat: NOW_S() + 3600, exp: NOW_S() + 7200 }),
  'not valid yet': (claims) => ({ ...claims, nbf: NOW_S() + 3600 }),
  'issued long before this sign-in': (claims) => ({ ...claims, iat: NOW_S() - 400, exp: NOW_S() + 3600 }),
  'no time of issue': ({ iat: _, ...claims }) => claims,
  'no subject': ({ sub: _, ...claims }) => claims,
  'an empty subject': (claims) => ({ ...claims, sub: '' }),
  'a subject that is too long': (claims) => ({ ...claims, sub: 'a'.repeat(256) }),
}

await t.test('an ID token that is not for this sign-in signs nobody in, whoever has signed it', async (t) => {
  const { gateway, attempt } = await spoiledStage(t)
  for (const [what, claims] of Object.entries(CLAIMS)) {
    const before = reasons(gateway).length
    await isNobody(t, await attempt({ claims }), 403, what)
    const [why, ...more] = reasons(gateway).slice(before)
    t.match(why, { level: 40, why: /\w+/, reqId: /^req_/ }, `${what}: the log says why`)
    t.same(more, [])
  }
  // Nobody was authenticated: no row says that somebody was refused.
  t.same(await gateway.rows({ action: 'admin.sign_in' }), [])
  t.same(await gateway.rows({ action: 'admin.sign_in_refused' }), [])
  t.same(await gateway.rows({ action: 'operator.created' }), [])
  t.notMatch(JSON.stringify(gateway.log), 'alice@example.com')

  const within = (claims: JWTPayload): JWTPayload => ({ ...claims, iat: NOW_S() + 20, exp: NOW_S() - 20 })
  for (const claims of [(same: JWTPayload) => same, within]) {
    const { browser, last } = await attempt({ claims })
    t.equal(last.status, 200, 'clocks may be half a minute apart')
    t.equal((await browser.jar.ask('GET', '/v1/admin/session')).json.operator, OPERATOR)
  }
})

await t.test('an ID token that the provider has not signed signs nobody in', async (t) => {
  const { gateway, provider, attempt } = await spoiledStage(t)
  const [own] = provider.keys
  const stranger = await signingKey('two')
  const sameName = await signingKey('one')
  const publicPem = await exportSPKI(
    (await crypto.subtle.importKey('jwk', own.publicJwk, { name: 'ECDSA', namedCurve: 'P-256' }, true, [
      'verify',
    ])) as CryptoKey,
  )
  const shared = (claims: JWTPayload, secret: string): Promise<string> =>
    new SignJWT(claims).setProtectedHeader({ alg: 'HS256', kid: 'one' }).sign(Buffer.from(secret))
  const listed = (algorithm: string) => (document: Record<string, unknown>) => ({
    ...document,
    id_token_signing_alg_values_supported: ['ES256', algorithm],
  })
  const spoils: Readonly<Record<string, Spoiled>> = {
    'alg none': { idToken: (claims) => new UnsecuredJWT(claims).encode() },
    'alg none, which the provider lists': {
      idToken: (claims) => new UnsecuredJWT(claims).encode(),
      discovery: listed('none'),
    },
    'HS256 with the client secret': { idToken: (claims) => shared(claims, CLIENT_SECRET) },
    'HS256 with the client secret, which the provider lists': {
      idToken: (claims) => shared(claims, CLIENT_SECRET),
      discovery: listed('HS256'),
    },
    'HS256 with the public key': {
      idToken: (claims) => shared(claims, publicPem),
      discovery: listed('HS256'),
    },
    'HS256 with the public key as a JWK': {
      idToken: (claims) => shared(claims, JSON.stringify(own.publicJwk)),
      discovery: listed('HS256'),
    },
    'an unknown key': { idToken: (claims) => provider.sign(claims, {}, stranger) },
    'a key of the same name': { idToken: (claims) => provider.sign(claims, {}, sameName) },
    'a key that it brings along': {
      idToken: (claims) => provider.sign(claims, { kid: 'one', jwk: stranger.publicJwk }, stranger),
    },
    'a key that it says where to find': {
      idToken: (claims) => provider.sign(claims, { jku: `${provider.issuer}/keys-of-mallory` }, stranger),
    },
    'a header that nobody understands': {
      idToken: (claims) => provider.sign(claims, { crit: ['exp'], exp: 1 }).catch(() => 'a.b.c'),
    },
    'a signature that is cut off': {
      idToken: async (claims) => (await provider.sign(claims)).replace(/[^.]+$/, ''),
    },
    'claims that were changed': {
      idToken: async (claims) => {
        const [header, , signature] = (await provider.sign(claims)).split('.')
        const changed = Buffer.from(JSON.stringify({ ...claims, sub: 'mallory' })).toString('base64url')
        return `${header}.${changed}.${signature}`
      },
    },
  }
  for (const [what, spoiled] of Object.entries(spoils)) await isNobody(t, await attempt(spoiled), 403, what)
  t.equal(provider.asked.get('/keys-of-mallory'), undefined)
  t.same(await gateway.rows({ action: 'admin.sign_in' }), [])
  t.equal((await attempt()).last.status, 200)
})

await t.test('what is no ID token at all, in its place, signs nobody in', async (t) => {
  const { provider, gateway, attempt } = await spoiledStage(t)
  const { issuer } = provider
  const { sub } = provider.person
  const times = () => ({ iat: NOW_S(), exp: NOW_S() + 60 })
  const events = { 'http://schemas.openid.net/event/backchannel-logout': {} }
  const tokens: Readonly<Record<string, () => unknown>> = {
    'an access token of the provider': () =>
      provider.sign({ iss: issuer, aud: CLIENT_ID, sub, scope: 'openid', ...times() }, { typ: 'at+jwt' }),
    'a logout token of the provider': () =>
      provider.sign(
        { iss: issuer, aud: CLIENT_ID, sub, jti: 'a', events, ...times() },
        { typ: 'logout+jwt' },
      ),
    'an opaque access token': () => 'b9f3c9b6-5f6a-4a3e-9d0a-000000000000',
    'an empty text': () => '',
    'a number': () => 1,
    'an object': () => ({ sub }),
    'a token of half a megabyte': () => 'a'.repeat(100_000),
  }
  for (const [what, idToken] of Object.entries(tokens))
    await isNobody(t, await attempt({ idToken }), 403, what)
  const none = ({ id_token: _, ...answer }: Record<string, unknown>) => answer
  await isNobody(t, await attempt({ tokens: none }), 403, 'none')
  const other = (answer: Record<string, unknown>) => ({ ...answer, token_type: 'unheard-of' })
  await isNobody(t, await attempt({ tokens: other }), 403, 'tokens of another kind')
  t.same(await gateway.rows({ action: 'admin.sign_in' }), [])
})
