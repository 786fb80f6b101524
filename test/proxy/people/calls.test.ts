import {
  auth,
  Client,
  type OAuthClientProvider,
  StreamableHTTPClientTransport,
} from '@modelcontextprotocol/client'
import { decodeJwt } from 'jose'
import t from 'tap'
import { buttonsIn, press } from '../../support/dashboard/pressing.ts'
import { signedInAs } from '../../support/dashboard/signed-in.ts'
import { athOf, proof, proofSigner } from '../../support/dpop.ts'
import { CHAT } from '../../support/gateway.ts'
import { tool, toolServer } from '../../support/mcp/stage.ts'
import { testProvider } from '../../support/oidc/provider.ts'
import { operatorsFile } from '../../support/oidc/sign-in.ts'
import { operatorNamed } from '../../support/operators.ts'
import { PEOPLE_URL, peopleGateway } from '../../support/people/door.ts'
import { askToken, authorizationUrl, Person } from '../../support/people/person.ts'

const REDIRECT = 'https://client.test/callback'
const MCP = `${PEOPLE_URL}/v1/mcp`

const provider = await testProvider(t)
const gateway = await peopleGateway(
  t,
  {
    map: { 'alice@example.com': 'alice' },
    clients: { registered: [{ id: 'editor', name: 'Editor', redirect_uris: [REDIRECT] }] },
    llm: 'key',
  },
  {
    settings: { MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true' },
    files: { '70-operators.yaml': operatorsFile(provider.issuer) },
  },
)
await provider.register(gateway)

/** Asks the API of administration for something that it must do. */
async function done(path: string, body: object) {
  const answer = await gateway.admin('POST', path, body)
  if (answer.status !== 201) throw new Error(`${path}: ${answer.status} ${answer.text}`)
  return answer.json
}

const held = ['llm.chat', 'mcp.tools.list', 'mcp.tools.call', 'files.use']
const alice = await done('/v1/admin/users', { user_name: 'alice', capabilities: held })
const server = await toolServer(t, [tool('read'), tool('search'), tool('write')])
const files = await done('/v1/admin/mcp-resources', {
  name: 'files',
  endpoint_url: server.url,
  required_capability: 'files.use',
  tool_min_proof: { read: 'none', search: 'key' },
})
await done('/v1/admin/mcp-resources/bindings', {
  agent_id: alice.principal_id,
  resource_id: files.resource_id,
})

/** Signs alice in. `more`: of the token request, such as a proof. */
async function tokenOf(more: Readonly<Record<string, string>> = {}, scope: string | null = null) {
  const { url, verifier } = authorizationUrl('editor', REDIRECT, { resource: PEOPLE_URL, scope })
  const back = await new Person(gateway, 'alice').allow(url, provider.issuer)
  const fields = { grant_type: 'authorization_code', client_id: 'editor', redirect_uri: REDIRECT }
  const code = back.searchParams.get('code') ?? ''
  const { json } = await askToken(gateway, { ...fields, code, code_verifier: verifier }, more)
  return json
}

/** A call of a tool, or another message. */
async function call(method: string, params: object, headers: Readonly<Record<string, string>>) {
  const answer = await gateway.fetch(MCP, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...headers,
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
  })
  // biome-ignore lint/suspicious/noExplicitAny: a test reads the answer as its client would, field by field
  const json: any = await answer.json()
  return { status: answer.status, headers: answer.headers, json }
}

const callTool = (name: string, headers: Readonly<Record<string, string>>) =>
  call('tools/call', { name: `files.${name}`, arguments: {} }, headers)

/** A client with a key: what it sends with a call, and with a token request. */
function keyed() {
  const signer = proofSigner()
  let nonce: string | null = null
  const over = (htu: string, token?: string): string =>
    proof(signer, { htm: 'POST', htu, ...(token && { ath: athOf(token) }), ...(nonce && { nonce }) })
  return {
    forToken: () => ({ dpop: over(`${PEOPLE_URL}/oauth/token`) }),
    use: (given: Headers) => {
      nonce = given.get('dpop-nonce') ?? nonce
    },
    headers: (token: string, url = MCP) => ({ authorization: `DPoP ${token}`, dpop: over(url, token) }),
  }
}

await t.test('without a token a call is told where to sign in', async (t) => {
  const { status, headers } = await call('tools/list', {}, {})
  t.equal(status, 401)
  const challenge = headers.get('www-authenticate')
  t.match(challenge, `resource_metadata="${PEOPLE_URL}/.well-known/oauth-protected-resource/v1/mcp"`)
  t.match(challenge, 'scope="mcp"')
  t.match(challenge, /DPoP .*algs="/)
})

await t.test('a bearer reaches what takes none, sees nothing else, and its rows say so', async (t) => {
  const { access_token: token } = await tokenOf()
  const headers = { authorization: `Bearer ${token}` }
  const listed = await call('tools/list', {}, headers)
  t.same(
    listed.json.result?.tools.map(({ name }: { name: string }) => name),
    ['files.read'],
    JSON.stringify(listed.json),
  )
  t.match(await callTool('read', headers), { status: 200, json: { result: Object } })
  for (const name of ['search', 'write'])
    t.match(await callTool(name, headers), { json: { error: { data: { reason: 'proof_too_weak' } } } }, name)
  const row = (await gateway.rows()).findLast(
    ({ tool: of, status }) => of === 'files.read' && status === 'allowed',
  )
  const { grant } = decodeJwt(token)
  t.match(row, {
    cert_thumbprint: null,
    detail: { authority: { bound: 'none', grant }, client: { kind: 'registered' } },
  })
})

await t.test('a program with a key reaches what takes a key, and its stolen token does not', async (t) => {
  const own = keyed()
  const { access_token: token, token_type: type } = await tokenOf(own.forToken())
  t.equal(type, 'DPoP')
  const first = await callTool('search', own.headers(token))
  own.use(first.headers)
  const second = first.status === 200 ? first : await callTool('search', own.headers(token))
  t.match(second, { status: 200, json: { result: Object } }, JSON.stringify(second.json))
  t.equal((await callTool('search', { authorization: `Bearer ${token}` })).status, 401)
  t.match(await callTool('search', { authorization: `DPoP ${token}` }), { status: 401 })
  const thief = keyed()
  thief.use(second.headers)
  t.match(await callTool('search', thief.headers(token)), { status: 401 })
  t.match(await callTool('write', own.headers(token)), {
    json: { error: { data: { reason: 'proof_too_weak' } } },
  })
})

await t.test('LLM calls at this door go by its grade', async (t) => {
  const own = keyed()
  const { access_token: token } = await tokenOf(own.forToken(), 'mcp llm')
  const url = `${PEOPLE_URL}/v1/chat/completions`
  const chat = (headers: Readonly<Record<string, string>>) =>
    gateway.fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(CHAT),
    })
  const first = await chat(own.headers(token, url))
  own.use(first.headers)
  await first.arrayBuffer()
  const answer = first.status === 200 ? first : await chat(own.headers(token, url))
  t.equal(answer.status, 200)
  const { access_token: bearer } = await tokenOf({}, 'mcp llm')
  t.match(await (await chat({ authorization: `Bearer ${bearer}` })).json(), { reason: 'proof_too_weak' })
})

await t.test('a grant that has ended opens nothing from then on', async (t) => {
  const { access_token: token, refresh_token: refresh } = await tokenOf()
  const headers = { authorization: `Bearer ${token}` }
  t.equal((await callTool('read', headers)).status, 200)
  const revoked = await gateway.fetch(`${PEOPLE_URL}/oauth/revoke`, {
    method: 'POST',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: new URLSearchParams({ token: refresh, client_id: 'editor' }).toString(),
  })
  t.equal(revoked.status, 200)
  t.equal((await callTool('read', headers)).status, 401)
})

/** A message of a client of the older era, in a session. */
const legacy = (method: string, headers: Readonly<Record<string, string>>) =>
  call(method, method === 'initialize' ? LEGACY : {}, { 'mcp-protocol-version': '2025-11-25', ...headers })
const LEGACY = {
  protocolVersion: '2025-11-25',
  capabilities: {},
  clientInfo: { name: 'old', version: '1' },
}

await t.test('a session of the older era is of the grant that it was opened by', async (t) => {
  const [own, other] = [await tokenOf(), await tokenOf()]
  const bearer = (json: { access_token: string }) => ({ authorization: `Bearer ${json.access_token}` })
  const id = (await legacy('initialize', bearer(own))).headers.get('mcp-session-id') ?? ''
  const within = { 'mcp-session-id': id }
  t.ok((await legacy('tools/list', { ...within, ...bearer(own) })).json.result)
  const stranger = await legacy('tools/list', { ...within, ...bearer(other) })
  t.match([stranger.status, stranger.json.error.data.reason], [404, 'mcp_session_unknown'])
  const key = keyed()
  const { access_token: token } = await tokenOf(key.forToken())
  const first = await legacy('tools/list', { ...within, ...key.headers(token) })
  key.use(first.headers)
  const better = await legacy('tools/list', { ...within, ...key.headers(token) })
  t.equal(better.status, 404, 'a better proof is another session, too')
  const end = (headers: Readonly<Record<string, string>>) =>
    gateway.fetch(MCP, { method: 'DELETE', headers: { ...within, ...headers } })
  t.equal((await end(bearer(other))).status, 404, 'and nobody else ends it')
  t.ok((await legacy('tools/list', { ...within, ...bearer(own) })).json.result)
  t.equal((await end(bearer(own))).status, 204)
  t.equal((await legacy('tools/list', { ...within, ...bearer(own) })).status, 404)
})

await t.test("an operator sees a user's grants on their page, and ends one there", async (t) => {
  const { access_token: token } = await tokenOf()
  const { grant } = decodeJwt(token)
  const jar = await signedInAs(gateway, await operatorNamed(gateway, 'eve', ['admin.read', 'admin.enroll']))
  const path = `/proxy/users/${encodeURIComponent(alice.principal_id)}`
  const page = (await jar.ask('GET', path)).text
  t.match(page, 'Programs that may call in their name')
  t.match(page, 'client.test')
  const form = buttonsIn(page).find(({ action }) => action.endsWith(`/grants/${String(grant)}/end`))
  t.equal((await jar.send(form?.action ?? '', form?.fields ?? {})).status, 303)
  t.equal((await callTool('read', { authorization: `Bearer ${token}` })).status, 401)
  const ended = (await gateway.rows()).findLast(({ action }) => action === 'grant.ended')
  t.match(ended?.detail, { grant, why: 'operator' })
})

await t.test(
  'the least proof of a server is set by its form, and lowering it demands admin.grant',
  async (t) => {
    const tools = await signedInAs(
      gateway,
      await operatorNamed(gateway, 'tom', ['admin.read', 'admin.tools']),
    )
    const owner = await operatorNamed(gateway, 'own', ['admin.read', 'admin.tools', 'admin.grant'])
    const jar = await signedInAs(gateway, owner)
    const path = `/proxy/tools/${files.resource_id}`
    const least = async () => {
      const { json } = await gateway.admin('GET', `/v1/admin/mcp-resources/${files.resource_id}`)
      return [json.min_proof, json.tool_min_proof]
    }
    const page = async (who: typeof jar) => (await who.ask('GET', path)).text
    /** Presses the button, and again where the page has shown what it would have done. */
    const submit = async (who: typeof jar, typed: Readonly<Record<string, string>>) => {
      const first = await press(who, await page(who), 'Set the least proof', typed)
      return first.status === 200 ? press(who, first.text, /^Set the least proof/, typed) : first
    }
    const lower = { min_proof: 'certificate', tool_min_proof: 'read=none\nsearch=none\n' }
    const refused = await submit(tools, lower)
    t.equal(refused.status, 403)
    const before = ['certificate', { read: 'none', search: 'key' }]
    t.same(await least(), before)
    t.equal((await submit(jar, lower)).status, 303)
    t.same(await least(), ['certificate', { read: 'none', search: 'none' }])
    const wrong = { ...lower, tool_min_proof: 'read=some' }
    t.equal((await submit(jar, wrong)).status, 422)
    const higher = { ...lower, tool_min_proof: 'search=key\nread=key' }
    const asked = await press(tools, await page(tools), 'Set the least proof', higher)
    t.match(asked.text, /calls? would have been refused/, 'the calls by tokens alone are rehearsed')
    const back = { ...lower, tool_min_proof: 'read=none\nsearch=key' }
    t.equal((await submit(tools, back)).status, 303, 'raising it does not')
    t.same(await least(), before)
  },
)

await t.test('the SDK of MCP signs in by itself when it is told to, and calls a tool', async (t) => {
  const kept = new Map<string, unknown>()
  let sent: URL | null = null
  const own: OAuthClientProvider = {
    redirectUrl: REDIRECT,
    clientMetadata: { redirect_uris: [REDIRECT] },
    clientInformation: () => ({ client_id: 'editor' }),
    tokens: () => kept.get('tokens') as never,
    saveTokens: (tokens) => void kept.set('tokens', tokens),
    redirectToAuthorization: (url) => {
      sent = url
    },
    saveCodeVerifier: (verifier) => void kept.set('verifier', verifier),
    codeVerifier: () => String(kept.get('verifier')),
  }
  const transport = () =>
    new StreamableHTTPClientTransport(new URL(MCP), { authProvider: own, fetch: gateway.fetch })
  const client = new Client({ name: 'test', version: '1' })
  await t.rejects(client.connect(transport()))
  if (!sent) throw new Error('nobody was sent to sign in')
  const back = await new Person(gateway, 'alice').allow(sent, provider.issuer)
  const answered = { authorizationCode: back.searchParams.get('code') ?? '', iss: PEOPLE_URL }
  await auth(own, { serverUrl: MCP, fetchFn: gateway.fetch, ...answered })
  const again = new Client({ name: 'test', version: '1' })
  await again.connect(transport())
  const { tools } = await again.listTools()
  t.same(
    tools.map(({ name }) => name),
    ['files.read'],
  )
  t.match(await again.callTool({ name: 'files.read', arguments: {} }), { content: Array })
  await again.close()
})
