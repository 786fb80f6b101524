import { decodeJwt, decodeProtectedHeader } from 'jose'
import t from 'tap'
import { skipWithoutFile } from '../../support/db/engine.ts'
import { CHAT } from '../../support/gateway.ts'
import { lockDatabase } from '../../support/locker.ts'
import { testProvider } from '../../support/oidc/provider.ts'
import { operatorsFile } from '../../support/oidc/sign-in.ts'
import { PEOPLE_URL, peopleGateway } from '../../support/people/door.ts'
import { askToken, authorizationUrl, Person } from '../../support/people/person.ts'

const REDIRECT = 'https://client.test/callback'

const PEOPLE = {
  claim: 'groups',
  map: {
    platform: { set: ['mcp.tools.list', 'files.use'], create: true },
    staff: { set: ['llm.chat'], create: true },
  },
  clients: { registered: [{ id: 'editor', name: 'Editor', redirect_uris: [REDIRECT] }] },
}

const provider = await testProvider(t)
let skewMs = 0
const gateway = await peopleGateway(t, PEOPLE, {
  clock: () => Date.now() + skewMs,
  files: { '70-operators.yaml': operatorsFile(provider.issuer) },
})
await provider.register(gateway)

/** Signs a person in, and redeems the code. */
async function granted(login: string) {
  const person = new Person(gateway, login)
  const { url, verifier } = authorizationUrl('editor', REDIRECT)
  const back = await person.allow(url, provider.issuer)
  const code = back.searchParams.get('code') ?? ''
  const redeem = () =>
    askToken(gateway, {
      grant_type: 'authorization_code',
      client_id: 'editor',
      redirect_uri: REDIRECT,
      code,
      code_verifier: verifier,
    })
  return { person, back, redeem }
}

const refresh = (token: string) =>
  askToken(gateway, { grant_type: 'refresh_token', client_id: 'editor', refresh_token: token })

await t.test(
  'a person signs in, consents, and gets a token of a grant that is in the ledger first',
  async (t) => {
    const { back, redeem } = await granted('alice')
    t.equal(back.searchParams.get('iss'), PEOPLE_URL)
    t.equal(back.searchParams.get('state'), 'the-state')
    const { status, json } = await redeem()
    t.equal(status, 200, JSON.stringify(json))
    t.match(json, { token_type: 'Bearer', expires_in: 600, scope: 'mcp', refresh_token: String })
    t.match(decodeProtectedHeader(json.access_token), { typ: 'at+jwt', alg: 'ES256' })
    const claims = decodeJwt(json.access_token)
    t.match(claims, { iss: PEOPLE_URL, aud: `${PEOPLE_URL}/v1/mcp`, client_id: 'editor', scope: 'mcp' })
    const rows = await gateway.rows()
    const issued = rows.find(({ action }) => action === 'grant.issued')
    t.match(issued?.detail, {
      subject: claims.sub,
      grant: claims.grant,
      client: { host: 'client.test', kind: 'registered' },
      kind: 'code',
      scope: null,
      resource: `${PEOPLE_URL}/v1/mcp`,
      bound: 'none',
      jkt: null,
    })
    t.match(rows.find(({ action }) => action === 'token.issued')?.detail, {
      grant: claims.grant,
      bound: 'none',
    })
    t.match(rows.find(({ action }) => action === 'user.created')?.principal_id, claims.sub)
    const kept = rows.map(({ principal_name, subject_name, ...row }) => row)
    t.notMatch(JSON.stringify(kept), /alice/, 'no row names the person')
  },
)

await t.test('whoever refuses consent sends the program back with access_denied', async (t) => {
  const { url } = authorizationUrl('editor', REDIRECT)
  const back = await new Person(gateway, 'alice').allow(url, provider.issuer, 'deny')
  t.match(Object.fromEntries(back.searchParams), {
    error: 'access_denied',
    iss: PEOPLE_URL,
    state: 'the-state',
  })
})

await t.test('whoever maps to nothing gets nothing, and no user', async (t) => {
  provider.accounts.set('mallory', { groups: ['visitors'] })
  const { url } = authorizationUrl('editor', REDIRECT)
  const { answer } = await new Person(gateway, 'mallory').follow(url, provider.issuer)
  t.equal(answer?.status, 403)
  t.match(answer?.text, /This sign-in was refused/)
})

await t.test('a set is applied anew at each sign-in, and several unite', async (t) => {
  provider.accounts.set('carol', { groups: ['staff'] })
  await (await granted('carol')).redeem()
  provider.accounts.set('carol', { groups: ['staff', 'platform'] })
  await (await granted('carol')).redeem()
  const rows = await gateway.rows()
  const patched = rows.findLast(({ action }) => action === 'user.capabilities_patched')
  t.match(patched?.detail, { previous: ['llm.chat'] })
  const { capabilities } = patched?.detail ?? {}
  t.same(new Set(capabilities as string[]), new Set(['files.use', 'llm.chat', 'mcp.tools.list']))
})

await t.test('of 200 redemptions of one code at once, one has a token', async (t) => {
  const { redeem } = await granted('bob')
  const answers = await Promise.all(Array.from({ length: 200 }, redeem))
  t.equal(answers.filter(({ status }) => status === 200).length, 1)
  t.same(new Set(answers.map(({ json }) => json.error)), new Set(['invalid_grant', undefined]))
})

await t.test('a code that is shown again ends the grant of its first token', async (t) => {
  const { redeem } = await granted('alice')
  const { json } = await redeem()
  const { grant } = decodeJwt(json.access_token)
  t.match(await redeem(), { status: 400, json: { error: 'invalid_grant' } })
  const ended = (await gateway.rows()).filter(({ action }) => action === 'grant.ended')
  t.match(ended.at(-1)?.detail, { grant, why: 'reuse' })
  t.match(await refresh(json.refresh_token), { status: 400, json: { error: 'invalid_grant' } })
})

await t.test('a refresh token is rotated, and taken twice more within ten seconds', async (t) => {
  const first = (await (await granted('alice')).redeem()).json
  const answers = await Promise.all([1, 2, 3].map(() => refresh(first.refresh_token)))
  t.same(
    answers.map(({ status }) => status),
    [200, 200, 200],
  )
  const tokens = new Set(answers.map(({ json }) => json.refresh_token))
  t.equal(tokens.size, 3)
  t.notOk(tokens.has(first.refresh_token))
  const { grant } = decodeJwt(first.access_token)
  t.equal(decodeJwt(answers[0]?.json.access_token).grant, grant)
  t.match(await refresh(first.refresh_token), { status: 400, json: { error: 'invalid_grant' } })
  const ended = (await gateway.rows()).filter(({ action }) => action === 'grant.ended')
  t.match(ended.at(-1)?.detail, { grant, why: 'reuse' })
  t.match(await refresh(answers[0]?.json.refresh_token), { status: 400 }, 'all of the grant is ended')
})

await t.test('a refresh token that is shown again after ten seconds ends the grant', async (t) => {
  const { json } = await (await granted('alice')).redeem()
  t.equal((await refresh(json.refresh_token)).status, 200)
  skewMs += 10_500
  t.match(await refresh(json.refresh_token), { status: 400, json: { error: 'invalid_grant' } })
  const ended = (await gateway.rows()).filter(({ action }) => action === 'grant.ended')
  t.match(ended.at(-1)?.detail, { grant: decodeJwt(json.access_token).grant, why: 'reuse' })
})

await t.test('a user has twenty grants: a further one replaces the oldest', async (t) => {
  provider.accounts.set('dave', { groups: ['staff'] })
  const grants: unknown[] = []
  const person = new Person(gateway, 'dave')
  for (let count = 0; count < 21; count += 1) {
    const { url, verifier } = authorizationUrl('editor', REDIRECT)
    const back = await person.allow(url, provider.issuer)
    const fields = { grant_type: 'authorization_code', client_id: 'editor', redirect_uri: REDIRECT }
    const code = back.searchParams.get('code') ?? ''
    const { json } = await askToken(gateway, { ...fields, code, code_verifier: verifier })
    grants.push(decodeJwt(json.access_token).grant)
  }
  const ended = (await gateway.rows()).filter(({ action }) => action === 'grant.ended')
  t.match(ended.at(-1)?.detail, { grant: grants[0], why: 'replaced' })
})

await t.test("on the account page a person sees their programs, and ends one's grant", async (t) => {
  const { person, redeem } = await granted('alice')
  const { json } = await redeem()
  const grant = String(decodeJwt(json.access_token).grant)
  const { text } = await person.visit(new URL('/account', PEOPLE_URL))
  t.match(text, grant)
  t.match(text, 'client.test')
  const token = /name="token" value="([^"]+)"/.exec(text)?.[1] ?? ''
  const other = await person.visit(new URL('/account/end', PEOPLE_URL), { grant, token: 'guessed' })
  t.equal(other.status, 403)
  const { status } = await person.visit(new URL('/account/end', PEOPLE_URL), { grant, token })
  t.equal(status, 200)
  const ended = (await gateway.rows()).filter(({ action }) => action === 'grant.ended')
  t.match(ended.at(-1)?.detail, { grant, why: 'person' })
  t.match(await refresh(json.refresh_token), { status: 400 })
})

await t.test('the account page has whoever comes by themself sign in', async (t) => {
  const person = new Person(gateway, 'alice')
  const { url, answer } = await person.follow(new URL('/account', PEOPLE_URL), provider.issuer)
  t.equal(url.pathname, '/account')
  t.match(answer?.text, /Signed in as/)
  t.match(answer?.headers.get('content-security-policy'), /frame-ancestors 'none'/)
})

await t.test('tokens of people are refused on the main listener', async (t) => {
  const { json } = await (await granted('alice')).redeem()
  const headers = { authorization: `Bearer ${json.access_token}`, 'content-type': 'application/json' }
  const answer = await gateway.call(null, 'POST', '/v1/mcp', {
    headers,
    body: { jsonrpc: '2.0', id: 1, method: 'tools/list' },
  })
  t.equal(answer.status, 401)
  t.match(answer.text, 'certificate_required')
  const bot = await gateway.enroll('token-bearer', ['llm.chat'])
  const before = gateway.upstream.seen.length
  const call = await gateway.call(bot, 'POST', '/v1/chat/completions', { headers, body: CHAT })
  t.match([call.status, call.json.reason], [401, 'token_invalid'], 'also with a certificate')
  t.equal(gateway.upstream.seen.length, before, 'it goes to no provider as a key')
})

await t.test(
  'while the ledger cannot be written no token leaves, and the same code works afterwards',
  { skip: skipWithoutFile },
  async (t) => {
    const { redeem } = await granted('bob')
    const release = await lockDatabase(t, gateway.settings.databaseUrl.replace('sqlite:', ''))
    t.match(await redeem(), { status: 503, json: { error: 'temporarily_unavailable' } })
    await release()
    t.equal((await redeem()).status, 200)
  },
)

await t.test('a grant has sixty tokens a minute', async (t) => {
  let { json } = await (await granted('bob')).redeem()
  for (let count = 1; count < 60; count += 1) json = (await refresh(json.refresh_token)).json
  t.match(await refresh(json.refresh_token), { status: 429, json: { reason: 'token_throttled' } })
})
