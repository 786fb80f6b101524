import {
  auth,
  Client,
  type OAuthClientProvider,
  StreamableHTTPClientTransport,
} from '@modelcontextprotocol/client'
import { decodeJwt } from 'jose'
import t from 'tap'
import { athOf, proof, proofSigner } from '../../support/dpop.ts'
import { CHAT } from '../../support/gateway.ts'
import { tool, toolServer } from '../../support/mcp/stage.ts'
import { testProvider } from '../../support/oidc/provider.ts'
import { operatorsFile } from '../../support/oidc/sign-in.ts'
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
