import { randomUUID } from 'node:crypto'
import type { JWTPayload } from 'jose'
import t, { type Test } from 'tap'
import type { TestGateway } from '../../support/gateway.ts'
import type { Jar } from '../../support/oidc/jar.ts'
import { CLIENT_ID } from '../../support/oidc/provider.ts'
import { gatewayOf, signedIn } from '../../support/oidc/sign-in.ts'
import { type SpoiledProvider, signingKey, spoiledProvider } from '../../support/oidc/spoiled-provider.ts'
import { operatorNamed } from '../../support/operators.ts'

const EVENT = 'http://schemas.openid.net/event/backchannel-logout'
const ALICE = 'acme::operator::alice'

interface Stage {
  readonly provider: SpoiledProvider
  readonly gateway: TestGateway
}

/** A gateway on which alice may sign in, and bob. */
async function stage(t: Test): Promise<Stage> {
  const provider = await spoiledProvider(t)
  const map = { 'alice@example.com': 'alice', 'bob@example.com': 'bob' }
  const gateway = await gatewayOf(t, provider, { oidc: { map } })
  for (const name of ['alice', 'bob']) await operatorNamed(gateway, name, ['admin.read'])
  return { provider, gateway }
}

/** Signs somebody in, in a session of the provider's. */
function signIn({ provider, gateway }: Stage, name: string, sid: string): Promise<Jar> {
  provider.person = { sub: name, email: `${name}@example.com`, email_verified: true, sid }
  return signedIn(gateway, name)
}

const isIn = async (jar: Jar): Promise<boolean> => (await jar.ask('GET', '/v1/admin/session')).status === 200

/** The claims of a logout token (OpenID Connect Back-Channel Logout 1.0 §2.4). */
function logoutClaims({ issuer }: SpoiledProvider, more: Record<string, unknown> = {}): JWTPayload {
  const iat = Math.floor(Date.now() / 1000)
  const claims = {
    iss: issuer,
    aud: CLIENT_ID,
    iat,
    exp: iat + 120,
    jti: randomUUID(),
    events: { [EVENT]: {} },
  }
  return Object.fromEntries(
    Object.entries({ ...claims, sub: 'alice', ...more }).filter(([, value]) => value !== undefined),
  )
}

const tell = ({ gateway }: Stage, token: string) =>
  gateway.call(null, 'POST', '/proxy/oidc/backchannel-logout', {
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: new URLSearchParams({ logout_token: token }).toString(),
  })

await t.test('back-channel logout ends the session that it names, or all of its person', async (t) => {
  const set = await stage(t)
  const { provider, gateway } = set
  const [one, two, other] = [
    await signIn(set, 'alice', 's1'),
    await signIn(set, 'alice', 's2'),
    await signIn(set, 'bob', 's3'),
  ]
  const bySession = await tell(
    set,
    await provider.sign(logoutClaims(provider, { sub: undefined, sid: 's1' })),
  )
  t.equal(bySession.status, 200, bySession.text)
  t.equal(bySession.headers['cache-control'], 'no-store')
  t.same([await isIn(one), await isIn(two), await isIn(other)], [false, true, true])
  t.equal((await tell(set, await provider.sign(logoutClaims(provider)))).status, 200)
  t.same([await isIn(two), await isIn(other)], [false, true])
  const rows = await gateway.rows({ action: 'admin.signed_out' })
  t.equal(rows.length, 2)
  for (const row of rows)
    t.match(row, { principal_id: ALICE, detail: { by: 'provider', issuer: provider.issuer } })
  t.equal((await tell(set, await provider.sign(logoutClaims(provider)))).status, 200, 'nobody is left to end')
})

await t.test('§2.6 a logout token that is spoiled ends nothing', async (t) => {
  const set = await stage(t)
  const { provider } = set
  const jar = await signIn(set, 'alice', 's1')
  const now = Math.floor(Date.now() / 1000)
  const spoiled: Readonly<Record<string, Record<string, unknown>>> = {
    'with a nonce, as an ID token has': { nonce: 'n' },
    'without events': { events: undefined },
    'of another event': { events: { 'https://example.com/event': {} } },
    'whose event is no object': { events: { [EVENT]: 'yes' } },
    'of another issuer': { iss: 'https://elsewhere.example' },
    'for another client': { aud: 'another' },
    'that is over': { iat: now - 7_200, exp: now - 3_600 },
    'of long ago': { iat: now - 3_600, exp: now + 3_600 },
    'of times to come': { iat: now + 3_600, exp: now + 7_200 },
    'without a time': { iat: undefined },
    'without a jti': { jti: undefined },
    'that names nobody': { sub: undefined },
    'whose person is no text': { sub: undefined, sid: ['s1'] },
  }
  for (const [name, more] of Object.entries(spoiled)) {
    const answer = await tell(set, await provider.sign(logoutClaims(provider, more)))
    t.equal(answer.status, 400, name)
    t.match(answer.json, { error: 'invalid_request', reason: 'logout_token_invalid' })
  }
  const stranger = await signingKey('one')
  t.equal(
    (await tell(set, await provider.sign(logoutClaims(provider), {}, stranger))).status,
    400,
    'by another key',
  )
  const unknown = await signingKey('nobody')
  t.equal(
    (await tell(set, await provider.sign(logoutClaims(provider), {}, unknown))).status,
    400,
    'by a key unknown',
  )
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url')
  t.equal(
    (await tell(set, `${part({ alg: 'none' })}.${part(logoutClaims(provider))}.`)).status,
    400,
    'alg none',
  )
  for (const text of ['', 'x', 'a.b.c', 'a'.repeat(9_000)]) t.equal((await tell(set, text)).status, 400)
  t.ok(await isIn(jar))
})

await t.test('a logout token is believed once', async (t) => {
  const set = await stage(t)
  const { provider } = set
  const first = await signIn(set, 'alice', 's1')
  const token = await provider.sign(logoutClaims(provider))
  t.equal((await tell(set, token)).status, 200)
  t.notOk(await isIn(first))
  const second = await signIn(set, 'alice', 's2')
  t.equal((await tell(set, token)).status, 400, 'who has kept it ends no later session')
  t.ok(await isIn(second))
})

await t.test('while the provider’s keys cannot be had, a logout is to be sent again', async (t) => {
  const set = await stage(t)
  const { provider } = set
  const jar = await signIn(set, 'alice', 's1')
  const next = await signingKey('two')
  provider.keys = [next, ...provider.keys]
  provider.spoiled = {
    answer: (path, res) => {
      if (path !== '/jwks') return false
      res.writeHead(500).end()
      return true
    },
  }
  const token = await provider.sign(logoutClaims(provider))
  t.ok((await tell(set, token)).status >= 400)
  t.ok(await isIn(jar))
})
