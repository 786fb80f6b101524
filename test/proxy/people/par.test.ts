import { decodeJwt } from 'jose'
import t from 'tap'
import { CLIENT_ID, CLIENT_SECRET, testProvider } from '../../support/oidc/provider.ts'
import { PEOPLE_URL, peopleGateway } from '../../support/people/door.ts'
import { askToken, authorizationUrl, Person } from '../../support/people/person.ts'

const REDIRECT = 'https://client.test/callback'

// Its own sign-in: operators have none here.
const provider = await testProvider(t)
const client = (id: string) => ({ id, name: id, redirect_uris: [REDIRECT] })
const gateway = await peopleGateway(t, {
  sign_in: { issuer: provider.issuer, client_id: CLIENT_ID, client_secret: CLIENT_SECRET },
  claim: 'groups',
  map: { staff: { set: ['mcp.tools.list'], create: true } },
  clients: { registered: [client('editor'), client('other')] },
})
await provider.register(gateway)

/** Pushes what an address would say, and makes the address that refers to it (RFC 9126). */
async function pushed(changes: Readonly<Record<string, string | null>> = {}) {
  const { url, verifier } = authorizationUrl('editor', REDIRECT, changes)
  const answer = await gateway.fetch(`${PEOPLE_URL}/oauth/par`, {
    method: 'POST',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: url.searchParams.toString(),
  })
  // biome-ignore lint/suspicious/noExplicitAny: a test reads the answer as its client would, field by field
  const json: any = await answer.json()
  const referring = (as = 'editor') => {
    const next = new URL('/oauth/authorize', PEOPLE_URL)
    next.searchParams.set('client_id', as)
    next.searchParams.set('request_uri', String(json.request_uri))
    return next
  }
  return { status: answer.status, json, verifier, referring }
}

await t.test('a pushed request is gone on with by a sign-in block of its own', async (t) => {
  const { status, json, verifier, referring } = await pushed()
  t.equal(status, 201, JSON.stringify(json))
  const back = await new Person(gateway, 'alice').allow(referring(), provider.issuer)
  const fields = { grant_type: 'authorization_code', client_id: 'editor', redirect_uri: REDIRECT }
  const code = back.searchParams.get('code') ?? ''
  const token = await askToken(gateway, { ...fields, code, code_verifier: verifier })
  t.equal(token.status, 200, JSON.stringify(token.json))
  t.match(decodeJwt(token.json.access_token), { aud: `${PEOPLE_URL}/v1/mcp`, scope: 'mcp' })
  const again = await new Person(gateway, 'alice').follow(referring(), provider.issuer)
  t.equal(again.answer?.status, 400, 'it counts for one sign-in')
})

await t.test('a pushed request is of its client, and checked when it is pushed', async (t) => {
  const { referring } = await pushed()
  const other = await new Person(gateway, 'alice').follow(referring('other'), provider.issuer)
  t.equal(other.answer?.status, 400)
  for (const [what, changes, error] of [
    ['a foreign redirect', { redirect_uri: 'https://evil.test/callback' }, 'invalid_request'],
    ['no PKCE', { code_challenge: null, code_challenge_method: null }, 'invalid_request'],
    ['an unknown client', { client_id: 'nobody' }, 'invalid_client'],
  ] as const) {
    const { status, json } = await pushed(changes)
    t.ok(status === 400 || status === 401, what)
    t.equal(json.error, error, what)
  }
})
