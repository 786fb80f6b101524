import type { Test } from 'tap'
import type { Json, TestGateway } from '../gateway.ts'
import { type Act, type RawMcp, rawMcp, result, sendJson } from '../mcp/raw-upstream.ts'
import { legacyWith, type RpcOptions, request, tool } from '../mcp/stage.ts'
import { DISCOVERED } from '../mcp/upstream-servers.ts'
import { testProvider } from '../oidc/provider.ts'
import { operatorsFile } from '../oidc/sign-in.ts'
import { PEOPLE_URL, type PeopleGateway, peopleGateway } from '../people/door.ts'
import { askToken, authorizationUrl, Person, type PersonAnswer } from '../people/person.ts'
import { type SignInServer, signInServer } from './sign-in-server.ts'

const REDIRECT = 'https://client.test/callback'

/** People with accounts at two MCP servers, which record all that they are sent. */
export interface ConnectingStage {
  readonly gateway: PeopleGateway
  readonly issuer: SignInServer
  /** Their principals' ids. */
  readonly people: Readonly<Record<'alice' | 'bob', string>>
  /** `mail` of the older era, `files` of the stateless one. */
  readonly servers: Readonly<Record<'mail' | 'files', RawMcp>>
  readonly resources: Readonly<Record<'mail' | 'files', Json>>
  readonly tokens: Readonly<Record<'alice' | 'bob', string>>
  /** Tokens that the servers refuse. */
  readonly refused: Set<string>
  readonly admin: TestGateway['admin']
  readonly call: (who: 'alice' | 'bob', name: string, options?: RpcOptions) => Promise<Json>
  /** Begins a session of the older era, and returns its id. */
  readonly initialize: (who: 'alice' | 'bob', capabilities: Json) => Promise<string>
  /** Opens a link of ours as somebody, and signs in where it leads. `as`: the name that is typed in at the issuer. */
  readonly connect: (person: Person, link: string) => Promise<PersonAnswer>
  /** Opens a link of ours, and agrees to be sent on. Returns the issuer's page. */
  readonly begin: (person: Person, link: string) => Promise<URL>
  readonly person: (login: string) => Person
  /** Moves the gateway's clock. */
  readonly later: (ms: number) => void
  readonly provider: string
}

/** Starts them. Nobody has an account yet. */
export async function connectingStage(t: Test): Promise<ConnectingStage> {
  const provider = await testProvider(t)
  const issuer = await signInServer(t)
  let ahead = 0
  const people = {
    map: { 'alice@example.com': 'alice', 'bob@example.com': 'bob' },
    clients: { registered: [{ id: 'editor', name: 'Editor', redirect_uris: [REDIRECT] }] },
  }
  const gateway = await peopleGateway(t, people, {
    clock: () => Date.now() + ahead,
    settings: { MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true' },
    files: { '70-operators.yaml': operatorsFile(provider.issuer) },
  })
  await provider.register(gateway)
  const refused = new Set<string>()
  const servers = {
    mail: await rawMcp(
      t,
      guarded(
        issuer,
        refused,
        legacyWith(TOOLS, (res, told) => own(issuer, res, told)),
      ),
    ),
    files: await rawMcp(t, guarded(issuer, refused, stateless(issuer))),
  }
  const made = async (path: string, body: object): Promise<Json> => {
    const answer = await gateway.admin('POST', path, body)
    if (answer.status !== 201) throw new Error(`${path}: ${answer.status} ${answer.text}`)
    return answer.json
  }
  const user = (name: string) =>
    made('/v1/admin/users', { user_name: name, capabilities: ['mcp.tools.call', 'mcp.tools.list'] })
  const [alice, bob] = [await user('alice'), await user('bob')]
  const server = async (name: 'mail' | 'files'): Promise<Json> => {
    const resource = await made('/v1/admin/mcp-resources', {
      ...{ name, endpoint_url: servers[name].url, auth_type: 'oauth', min_proof: 'none' },
      oauth: { issuer: issuer.url, client_id: 'sallyport', scopes: ['mail'], reader: alice.principal_id },
    })
    for (const one of [alice, bob])
      await made('/v1/admin/mcp-resources/bindings', {
        agent_id: one.principal_id,
        resource_id: resource.resource_id,
      })
    return resource
  }
  const person = (login: string): Person => new Person(gateway, login)
  const resources = { mail: await server('mail'), files: await server('files') }
  const tokens = {
    alice: await tokenOf(gateway, person('alice'), provider.issuer),
    bob: await tokenOf(gateway, person('bob'), provider.issuer),
  }
  return {
    ...{ gateway, issuer, servers, resources, tokens, refused, person },
    admin: gateway.admin,
    people: { alice: alice.principal_id, bob: bob.principal_id },
    call: (who, name, options = {}) => callBy(gateway, tokens[who], name, options),
    initialize: (who, capabilities) => initializeBy(gateway, tokens[who], capabilities),
    begin: async (one, link) => {
      const begun = await beginAt(one, link, provider.issuer)
      if (!(begun instanceof URL)) throw new Error(begun.text)
      return begun
    },
    connect: (one, link) => connectAt(one, link, { provider: provider.issuer, issuer: issuer.url }),
    later: (ms) => {
      ahead += ms
    },
    provider: provider.issuer,
  }
}

const TOOLS = [tool('whose'), tool('send'), tool('rule')]

/** A server of the stateless era with the same tools. */
const stateless =
  (issuer: SignInServer): Act =>
  async (res, told) => {
    if (told.rpc === 'server/discover') return sendJson(res, result(told, DISCOVERED))
    if (told.rpc === 'initialize') return sendJson(res, {}, 400)
    if (told.rpc === 'tools/list') {
      const listed = { resultType: 'complete', tools: TOOLS, ttlMs: 0, cacheScope: 'private' }
      return sendJson(res, result(told, listed))
    }
    await own(issuer, res, told)
  }

/** The scopes that tools want; any other wants none. */
const WANTED: ReadonlyMap<unknown, string> = new Map([
  ['send', 'files'],
  ['rule', 'admin'],
])

const challenged = (res: Parameters<Act>[0], status: number, challenge: string): void => {
  res.writeHead(status, { 'www-authenticate': challenge }).end()
}

/** Answers a call with whose token it came, if that suffices. */
const own = async (issuer: SignInServer, ...[res, told]: Parameters<Act>): Promise<void> => {
  const holder = await issuer.holderOf(told.headers.authorization)
  const { name } = told.message.params as Json
  const wanted = WANTED.get(name)
  if (wanted !== undefined && !holder?.scopes.includes(wanted))
    return challenged(res, 403, `Bearer error="insufficient_scope", scope="${wanted}"`)
  const text = holder?.subject ?? 'nobody'
  sendJson(res, result(told, { resultType: 'complete', content: [{ type: 'text', text }] }))
}

/** Refuses whoever shows no token of the issuer. */
const guarded =
  (issuer: SignInServer, refused: ReadonlySet<string>, act: Act): Act =>
  async (res, told) => {
    const { authorization } = told.headers
    const isKnown = !refused.has(authorization ?? '') && (await issuer.holderOf(authorization)) !== null
    if (!isKnown) return challenged(res, 401, 'Bearer error="invalid_token"')
    await act(res, told)
  }

async function tokenOf(gateway: PeopleGateway, person: Person, provider: string): Promise<string> {
  const { url, verifier } = authorizationUrl('editor', REDIRECT, { resource: PEOPLE_URL, scope: null })
  const back = await person.allow(url, provider)
  const { json } = await askToken(gateway, {
    ...{ grant_type: 'authorization_code', client_id: 'editor', redirect_uri: REDIRECT },
    ...{ code: back.searchParams.get('code') ?? '', code_verifier: verifier },
  })
  return json.access_token
}

async function initializeBy({ fetch }: PeopleGateway, token: string, capabilities: Json): Promise<string> {
  const clientInfo = { name: 'test', version: '1' }
  const { headers, body } = request('initialize', {
    params: { protocolVersion: '2025-11-25', capabilities, clientInfo },
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
  })
  const answer = await fetch(`${PEOPLE_URL}/v1/mcp`, { method: 'POST', headers, body: JSON.stringify(body) })
  return answer.headers.get('mcp-session-id') ?? ''
}

async function callBy(
  { fetch }: PeopleGateway,
  token: string,
  tool: string,
  { params = {}, headers = {}, ...options }: RpcOptions,
): Promise<Json> {
  const { headers: own, body } = request('tools/call', {
    ...options,
    params: { name: tool, arguments: {}, ...params },
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}`, ...headers },
  })
  const answer = await fetch(`${PEOPLE_URL}/v1/mcp`, {
    method: 'POST',
    headers: own,
    body: JSON.stringify(body),
  })
  return (await answer.json()) as Json
}

/** Follows a link through the pages of the gateway and its identity provider, and agrees to be sent on. */
async function beginAt(person: Person, link: string, provider: string): Promise<URL | PersonAnswer> {
  const { url, answer } = await person.follow(new URL(link, PEOPLE_URL), provider)
  const token = /name="token" value="([^"]+)"/.exec(answer?.text ?? '')?.[1]
  if (!answer) throw new Error(`the link leads to ${url.href}`)
  if (!token) return answer
  const sent = await person.visit(url, { token })
  const next = /content="0;url=([^"]+)"/.exec(sent.text)?.[1]
  return next === undefined ? sent : new URL(next.replaceAll('&amp;', '&'), url)
}

/** The same, and signs in at the issuer. */
async function connectAt(
  person: Person,
  link: string,
  { provider, issuer }: { readonly provider: string; readonly issuer: string },
): Promise<PersonAnswer> {
  const begun = await beginAt(person, link, provider)
  if (!(begun instanceof URL)) return begun
  const { answer, url } = await person.follow(begun, issuer)
  if (!answer) throw new Error(`the issuer leads to ${url.href}`)
  return answer
}
