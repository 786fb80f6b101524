import { auth, type OAuthClientProvider } from '@modelcontextprotocol/client'
import { auth as legacyAuth } from '@modelcontextprotocol/sdk/client/auth.js'
import { decodeJwt, exportJWK, generateKeyPair, SignJWT } from 'jose'
import t from 'tap'
import { proof, proofSigner } from '../../support/dpop.ts'
import { testProvider } from '../../support/oidc/provider.ts'
import { operatorsFile } from '../../support/oidc/sign-in.ts'
import { PEOPLE_URL, peopleGateway } from '../../support/people/door.ts'
import { askToken, authorizationUrl, Person } from '../../support/people/person.ts'
import { clientSite } from '../../support/people/site.ts'

const site = await clientSite(t)
const provider = await testProvider(t)
const ADDRESS = `${site.url}/client.json`
const LOOPBACK = 'http://127.0.0.1/callback'
const gateway = await peopleGateway(
  t,
  {
    claim: 'groups',
    map: { staff: { set: ['mcp.tools.list'], create: true } },
    clients: {
      allow: ['/client.json', '/moved.json', '/large.json', '/keys.json'].map((path) => site.url + path),
      registration: 'sealed',
    },
  },
  { files: { '70-operators.yaml': operatorsFile(provider.issuer) } },
)
await provider.register(gateway)

const DOCUMENT = {
  client_id: ADDRESS,
  client_name: 'Desk <b>top</b>',
  redirect_uris: [LOOPBACK],
  grant_types: ['authorization_code', 'refresh_token', 'urn:made:up'],
  token_endpoint_auth_method: 'none',
  scope: 'mcp',
  logo_uri: 'https://client.test/logo.png',
}
site.documents.set('/client.json', DOCUMENT)

/** An SDK's client that keeps what it is told, as a program does. */
function program(metadataUrl: string | undefined): OAuthClientProvider & { readonly sent: URL[] } {
  const kept = new Map<string, unknown>()
  const sent: URL[] = []
  return {
    sent,
    redirectUrl: 'http://127.0.0.1:49152/callback',
    ...(metadataUrl !== undefined && { clientMetadataUrl: metadataUrl }),
    clientMetadata: { client_name: 'SDK', redirect_uris: ['http://127.0.0.1:49152/callback'] },
    state: () => 'state-of-the-sdk',
    clientInformation: () => kept.get('client') as never,
    saveClientInformation: (client) => void kept.set('client', client),
    tokens: () => kept.get('tokens') as never,
    saveTokens: (tokens) => void kept.set('tokens', tokens),
    redirectToAuthorization: (url) => void sent.push(url),
    saveCodeVerifier: (verifier) => void kept.set('verifier', verifier),
    codeVerifier: () => String(kept.get('verifier')),
  }
}

for (const [name, enter] of [
  ['@modelcontextprotocol/client', auth],
  ['@modelcontextprotocol/sdk', legacyAuth as unknown as typeof auth],
] as const)
  for (const [how, metadataUrl] of [
    ['by its document', ADDRESS],
    ['by registration', undefined],
  ] as const)
    await t.test(`${name} signs a person in ${how}, and refreshes`, async (t) => {
      const own = program(metadataUrl)
      const options = { serverUrl: `${PEOPLE_URL}/v1/mcp`, fetchFn: gateway.fetch }
      t.equal(await enter(own, options), 'REDIRECT')
      const back = await new Person(gateway, 'alice').allow(
        own.sent[0] ?? new URL(PEOPLE_URL),
        provider.issuer,
      )
      t.equal(back.origin, 'http://127.0.0.1:49152')
      const authorizationCode = back.searchParams.get('code') ?? ''
      const iss = back.searchParams.get('iss') ?? ''
      t.equal(await enter(own, { ...options, authorizationCode, ...(iss && { iss }) }), 'AUTHORIZED')
      const first = await own.tokens()
      t.match(decodeJwt(first?.access_token ?? ''), { iss: PEOPLE_URL, aud: `${PEOPLE_URL}/v1/mcp` })
      t.equal(await enter(own, options), 'AUTHORIZED')
      t.not((await own.tokens())?.refresh_token, first?.refresh_token)
      const issued = (await gateway.rows()).findLast(({ action }) => action === 'grant.issued')
      t.match(issued?.detail, { client: { kind: metadataUrl ? 'cimd' : 'sealed' }, bound: 'none' })
    })

await t.test(
  'consent names a program by its own word, escaped, and says that it runs on this machine',
  async (t) => {
    const { url } = authorizationUrl(ADDRESS, 'http://127.0.0.1:5000/callback')
    const { answer } = await new Person(gateway, 'bob').follow(url, provider.issuer)
    t.match(answer?.text, 'Desk &lt;b&gt;top&lt;/b&gt;')
    t.match(answer?.text, 'its own word')
    t.match(answer?.text, 'runs on your own machine')
    t.match(answer?.text, 'mcp.tools.list')
    t.match(answer?.headers.get('x-frame-options'), 'DENY')
  },
)

await t.test('a document that has changed since the page was shown is not consented to', async (t) => {
  const person = new Person(gateway, 'bob')
  const { url } = authorizationUrl(ADDRESS, 'http://127.0.0.1:5000/callback')
  const { url: page, answer } = await person.follow(url, provider.issuer)
  const token = /name="token" value="([^"]+)"/.exec(answer?.text ?? '')?.[1] ?? ''
  site.documents.set('/client.json', { ...DOCUMENT, client_name: 'Bank' })
  // Documents are read again by another configuration.
  await gateway.reload()
  t.match(await person.visit(page, { token, answer: 'allow' }), { status: 403 })
  site.documents.set('/client.json', DOCUMENT)
  await gateway.reload()
  t.match(await person.visit(page, { token, answer: 'allow' }), { status: 200 })
})

await t.test('a document that redirects, is another, is too long or not allowed is no client', async (t) => {
  site.documents.set('/moved.json', ADDRESS)
  site.documents.set('/large.json', {
    ...DOCUMENT,
    client_id: `${site.url}/large.json`,
    x: 'x'.repeat(17_000),
  })
  const other = `${site.url}/other.json`
  site.documents.set('/other.json', { ...DOCUMENT, client_id: other })
  for (const id of [`${site.url}/moved.json`, `${site.url}/large.json`, other, 'https://10.0.0.1/x']) {
    const { answer } = await new Person(gateway, 'bob').follow(
      authorizationUrl(id, LOOPBACK).url,
      provider.issuer,
    )
    t.equal(answer?.status, 400, id)
    t.match(answer?.text, 'invalid_client')
  }
  t.notOk(site.asked.includes('/other.json'), 'one that is not allowed is not even asked')
})

/** Registers a client. */
async function register(metadata: object) {
  const answer = await gateway.fetch(`${PEOPLE_URL}/oauth/register`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(metadata),
  })
  const json: unknown = await answer.json()
  return { status: answer.status, json: json as { readonly client_id: string; readonly error?: string } }
}

await t.test('registration keeps nothing, and refuses what is too much', async (t) => {
  const states = async () => (await gateway.rows()).length
  const before = await states()
  const { status, json } = await register({
    redirect_uris: ['https://a.test/cb'],
    client_name: 'A',
    scope: 'x y',
  })
  t.equal(status, 201)
  t.match(json.client_id, /^sealed\./)
  t.notMatch(json, { client_secret: String })
  const many = Array.from({ length: 6 }, (_, at) => `https://a.test/${at}`)
  t.match(await register({ redirect_uris: many }), {
    status: 400,
    json: { error: 'invalid_client_metadata' },
  })
  const long = { redirect_uris: [`https://a.test/${'x'.repeat(1_000)}`] }
  t.match(await register(long), { status: 400, json: { error: 'invalid_client_metadata' } })
  t.match(await register({ redirect_uris: ['javascript:alert(1)'] }), { status: 400 })
  t.equal(await states(), before, 'no row either')
})

await t.test('a program with a key has a grant of that key, and nobody refreshes it without', async (t) => {
  const { json: client } = await register({ redirect_uris: [LOOPBACK], client_name: 'Keyed' })
  const redirect = 'http://127.0.0.1:6000/callback'
  const { url, verifier } = authorizationUrl(client.client_id, redirect)
  const back = await new Person(gateway, 'alice').allow(url, provider.issuer)
  const signer = proofSigner()
  const dpop = () => ({
    dpop: proof(signer, {
      htm: 'POST',
      htu: `${PEOPLE_URL}/oauth/token`,
      iat: Math.floor(Date.now() / 1000),
    }),
  })
  const code = back.searchParams.get('code') ?? ''
  const fields = { grant_type: 'authorization_code', client_id: client.client_id, redirect_uri: redirect }
  const { json } = await askToken(gateway, { ...fields, code, code_verifier: verifier }, dpop())
  t.equal(json.token_type, 'DPoP', JSON.stringify(json))
  const { cnf } = decodeJwt(json.access_token) as { readonly cnf?: { readonly jkt: string } }
  const issued = (await gateway.rows()).findLast(({ action }) => action === 'grant.issued')
  t.match(issued?.detail, { bound: 'key', jkt: cnf?.jkt })
  const again = {
    grant_type: 'refresh_token',
    client_id: client.client_id,
    refresh_token: json.refresh_token,
  }
  t.match(await askToken(gateway, again), { status: 400, json: { error: 'invalid_grant' } })
  const { status, json: refreshed } = await askToken(gateway, again, dpop())
  t.equal(status, 200, JSON.stringify(refreshed))
  const used = dpop()
  t.equal((await askToken(gateway, { ...again, refresh_token: refreshed.refresh_token }, used)).status, 200)
  t.match(await askToken(gateway, { ...again, refresh_token: refreshed.refresh_token }, used), {
    status: 400,
  })
})

await t.test('a program with keys of its own proves itself by them, once', async (t) => {
  const { privateKey, publicKey } = await generateKeyPair('ES256')
  const id = `${site.url}/keys.json`
  const jwks = { keys: [{ ...(await exportJWK(publicKey)), kid: 'own', alg: 'ES256', use: 'sig' }] }
  site.documents.set('/keys.json', {
    ...{ client_id: id, client_name: 'Keys', redirect_uris: [LOOPBACK], jwks },
    token_endpoint_auth_method: 'private_key_jwt',
  })
  const { url, verifier } = authorizationUrl(id, LOOPBACK)
  const back = await new Person(gateway, 'alice').allow(url, provider.issuer)
  const code = back.searchParams.get('code') ?? ''
  const fields = { grant_type: 'authorization_code', client_id: id, redirect_uri: LOOPBACK }
  const asked = { ...fields, code, code_verifier: verifier }
  t.match(await askToken(gateway, asked), { status: 401, json: { error: 'invalid_client' } })
  const assertion = await new SignJWT({ jti: 'one' })
    .setProtectedHeader({ alg: 'ES256', kid: 'own' })
    .setIssuer(id)
    .setSubject(id)
    .setAudience(PEOPLE_URL)
    .setIssuedAt()
    .setExpirationTime('1m')
    .sign(privateKey)
  const type = 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer'
  const proven = { ...asked, client_assertion_type: type, client_assertion: assertion }
  const { status, json } = await askToken(gateway, proven)
  t.equal(status, 200, JSON.stringify(json))
  const again = { grant_type: 'refresh_token', client_id: id, refresh_token: json.refresh_token }
  const used = { ...again, client_assertion_type: type, client_assertion: assertion }
  t.match(await askToken(gateway, used), { status: 401 }, 'the assertion counts once')
})

await t.test('thirty documents are fetched in a minute, whoever names them', async (t) => {
  site.asked.length = 0
  for (let count = 0; count < 40; count += 1) {
    const { url } = authorizationUrl(`${site.url}/moved.json`, LOOPBACK)
    t.equal((await gateway.fetch(url, { headers: { accept: 'text/html' } })).status, 400)
  }
  t.ok(site.asked.length > 10 && site.asked.length <= 30, `${site.asked.length} were`)
})
