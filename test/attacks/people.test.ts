import { randomUUID } from 'node:crypto'
import { decodeJwt, SignJWT, UnsecuredJWT } from 'jose'
import t from 'tap'
import { testProvider } from '../support/oidc/provider.ts'
import { operatorsFile } from '../support/oidc/sign-in.ts'
import { PEOPLE_URL, peopleFetch, peopleGateway } from '../support/people/door.ts'
import { askToken, authorizationUrl, Person } from '../support/people/person.ts'

const REDIRECT = 'https://client.test/callback'
const ID_JAG = 'urn:ietf:params:oauth:grant-type:jwt-bearer'

const provider = await testProvider(t)
const client = (id: string) => ({ id, name: id, redirect_uris: [REDIRECT] })
const gateway = await peopleGateway(
  t,
  {
    claim: 'groups',
    map: { staff: { set: ['mcp.tools.list'], create: true } },
    clients: { registered: [client('editor'), client('other')] },
    id_jag: true,
  },
  { files: { '70-operators.yaml': operatorsFile(provider.issuer) } },
)
await provider.register(gateway)

/** Makes an assertion as the identity provider should; `changes` spoil it. */
const claimsOf = (changes: object = {}) => ({
  iss: provider.issuer,
  aud: PEOPLE_URL,
  sub: 'alice',
  groups: ['staff'],
  client_id: 'editor',
  resource: `${PEOPLE_URL}/v1/mcp`,
  jti: randomUUID(),
  iat: Math.floor(Date.now() / 1000),
  exp: Math.floor(Date.now() / 1000) + 120,
  ...changes,
})
const HEADER = { typ: 'oauth-id-jag+jwt' }
const redeem = (assertion: string, more: Readonly<Record<string, string>> = {}) =>
  askToken(gateway, { grant_type: ID_JAG, client_id: 'editor', assertion, ...more })
const rowsOf = async (action: string) => (await gateway.rows()).filter((row) => row.action === action)

await t.test(
  'an ID-JAG of the identity provider is a token without a page, and without refresh',
  async (t) => {
    const { status, json } = await redeem(await provider.sign(claimsOf(), HEADER))
    t.equal(status, 200, JSON.stringify(json))
    t.notOk(json.refresh_token)
    const { grant, aud } = decodeJwt(json.access_token)
    t.equal(aud, `${PEOPLE_URL}/v1/mcp`)
    t.match((await rowsOf('grant.issued')).at(-1)?.detail, { grant, kind: 'id_jag', bound: 'none' })
  },
)

await t.test('an ID-JAG counts for one use, by one client, for this server, while it is young', async (t) => {
  const before = (await rowsOf('token.issued')).length
  const used = await provider.sign(claimsOf(), HEADER)
  t.equal((await redeem(used)).status, 200)
  const key = new TextEncoder().encode('a secret of thirty-two characters')
  const old = Math.floor(Date.now() / 1000) - 400
  const spoiled: Readonly<Record<string, string>> = {
    'used before': used,
    'another issuer': await provider.sign(claimsOf({ iss: 'https://evil.test' }), HEADER),
    'another audience': await provider.sign(claimsOf({ aud: 'https://evil.test' }), HEADER),
    'an audience with a slash': await provider.sign(claimsOf({ aud: `${PEOPLE_URL}/` }), HEADER),
    'two audiences': await provider.sign(claimsOf({ aud: [PEOPLE_URL, 'https://evil.test'] }), HEADER),
    'another typ': await provider.sign(claimsOf(), { typ: 'JWT' }),
    'an ID token': await provider.sign(claimsOf({ aud: 'sallyport' }), { typ: 'JWT' }),
    'alg none': new UnsecuredJWT(claimsOf()).encode(),
    'a shared secret': await new SignJWT(claimsOf())
      .setProtectedHeader({ alg: 'HS256', ...HEADER })
      .sign(key),
    'another client': await provider.sign(claimsOf({ client_id: 'other' }), HEADER),
    'too old': await provider.sign(claimsOf({ iat: old }), HEADER),
    expired: await provider.sign(claimsOf({ exp: old }), HEADER),
    'without jti': await provider.sign(claimsOf({ jti: undefined }), HEADER),
    'a person who maps to nothing': await provider.sign(claimsOf({ groups: ['visitors'] }), HEADER),
    'no token': 'nonsense',
  }
  for (const [what, assertion] of Object.entries(spoiled)) {
    const { status, json } = await redeem(assertion)
    t.equal(status, 400, `${what}: ${JSON.stringify(json)}`)
  }
  const elsewhere = await provider.sign(claimsOf({ resource: 'https://evil.test/mcp' }), HEADER)
  t.match(await redeem(elsewhere), { status: 400, json: { error: 'invalid_target' } })
  const own = await provider.sign(claimsOf(), HEADER)
  t.match(
    await redeem(own, { resource: `${PEOPLE_URL}/v1/mcp/files` }),
    { status: 400 },
    'not of the assertion',
  )
  t.equal((await rowsOf('token.issued')).length, before + 1)
})

await t.test('of twenty redemptions of one ID-JAG at once, one has a token', async (t) => {
  const assertion = await provider.sign(claimsOf(), HEADER)
  const answers = await Promise.all(Array.from({ length: 20 }, () => redeem(assertion)))
  t.equal(answers.filter(({ status }) => status === 200).length, 1)
})

await t.test(
  'an authorization request that is spoiled reaches neither the person nor a foreign site',
  async (t) => {
    for (const [what, changes, error] of [
      ['a foreign redirect', { redirect_uri: 'https://evil.test/callback' }, 'invalid_redirect_uri'],
      ['a longer redirect', { redirect_uri: `${REDIRECT}/more` }, 'invalid_redirect_uri'],
      ['an unknown client', { client_id: 'nobody' }, 'invalid_client'],
      ['a sealed id of another service', { client_id: `sealed.${'A'.repeat(80)}` }, 'invalid_client'],
    ] as const) {
      const { url } = authorizationUrl('editor', REDIRECT, changes)
      const { url: end, answer } = await new Person(gateway, 'alice').follow(url, provider.issuer)
      t.equal(end.origin, PEOPLE_URL, what)
      t.equal(answer?.status, 400, what)
      t.match(answer?.text, error)
    }
    for (const [what, changes, error] of [
      ['no PKCE', { code_challenge: null, code_challenge_method: null }, 'invalid_request'],
      ['plain PKCE', { code_challenge_method: 'plain' }, 'invalid_request'],
      ['an implicit token', { response_type: 'token' }, 'unsupported_response_type'],
      ['a foreign resource', { resource: 'https://evil.test/mcp' }, 'invalid_target'],
    ] as const) {
      const { url } = authorizationUrl('editor', REDIRECT, changes)
      const { url: end } = await new Person(gateway, 'alice').follow(url, provider.issuer)
      const told = end.hash === '' ? end.searchParams : new URLSearchParams(end.hash.slice(1))
      t.equal(told.get('error'), error, what)
      t.equal(told.get('iss'), PEOPLE_URL, what)
    }
  },
)

await t.test('a code is redeemed by its client alone, with its verifier and its redirect', async (t) => {
  for (const [what, changes] of [
    ['another client', { client_id: 'other' }],
    ['another verifier', { code_verifier: 'x'.repeat(43) }],
    ['another redirect', { redirect_uri: 'https://client.test/' }],
  ] as const) {
    const { url, verifier } = authorizationUrl('editor', REDIRECT)
    const back = await new Person(gateway, 'alice').allow(url, provider.issuer)
    const code = back.searchParams.get('code') ?? ''
    const fields = { grant_type: 'authorization_code', client_id: 'editor', redirect_uri: REDIRECT, code }
    const spoiled = { ...fields, code_verifier: verifier, ...changes }
    t.match(await askToken(gateway, spoiled), { status: 400, json: { error: 'invalid_grant' } }, what)
  }
})

await t.test(
  "a sign-in is of the browser that began it: pages and answers of another's are refused",
  async (t) => {
    const [alice, bob] = [new Person(gateway, 'alice'), new Person(gateway, 'bob')]
    const { url } = authorizationUrl('editor', REDIRECT)
    const { url: page, answer } = await alice.follow(url, provider.issuer)
    const token = /name="token" value="([^"]+)"/.exec(answer?.text ?? '')?.[1] ?? ''
    t.ok(token)
    t.equal((await bob.visit(page)).status, 400, 'without any session')
    await bob.follow(new URL('/account', PEOPLE_URL), provider.issuer)
    t.equal((await bob.visit(page, { token, answer: 'allow' })).status, 400, 'with one of their own')
    const callback = new URL(`/oauth/callback?code=x&state=${'s'.repeat(43)}`, PEOPLE_URL)
    t.equal((await bob.visit(callback)).status, 400, 'a state of another browser')
    t.equal((await alice.visit(page, { token: 'guessed', answer: 'allow' })).status, 403)
    const form = { 'content-type': 'application/x-www-form-urlencoded', origin: 'https://evil.test' }
    const forged = await gateway.fetch(page, { method: 'POST', headers: form, body: 'answer=allow' })
    t.equal(forged.status, 403, 'a form of another site')
  },
)

await t.test('a body is of 16 KiB at most', async (t) => {
  const { status } = await askToken(gateway, { grant_type: 'x'.repeat(17_000) })
  t.equal(status, 413)
})

await t.test('a stranger who begins 700 sign-ins locks out nobody, and a crowd can sign in', async (t) => {
  const { url } = authorizationUrl('editor', REDIRECT)
  const crowd = Array.from({ length: 8 }, () => new Person(gateway, 'alice'))
  const pages = await Promise.all(crowd.map((person) => person.follow(url, provider.issuer)))
  const stranger = peopleFetch(t, gateway, '127.0.0.2')
  for (let round = 0; round < 35; round += 1)
    await Promise.all(
      Array.from({ length: 20 }, async () => {
        const answer = await stranger(url, { redirect: 'manual' })
        await answer.arrayBuffer()
        if (answer.status !== 303) t.fail(`status ${answer.status}`)
      }),
    )
  for (const [nth, person] of crowd.entries()) {
    const back = await person.answer(pages[nth] ?? { url, answer: null }, provider.issuer)
    t.ok(back.searchParams.get('code'), back.href)
  }
  const late = await new Person(gateway, 'alice').allow(url, provider.issuer)
  t.ok(late.searchParams.get('code'), 'and so can somebody who comes now')
})
