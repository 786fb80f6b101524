import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { exportJWK, generateKeyPair } from 'jose'
import Provider, { type ProviderToken } from 'oidc-provider'
import { createMemoryAdapter } from 'oidc-provider/lib/adapters/memory_adapter.js'
import type { Test } from 'tap'

export const PEOPLE_URL = 'https://people.test'
export const CLIENT = { client_id: 'sallyport', client_secret: 'the-secret-of-sallyport-at-the-issuer' }

/** Options of an issuer, which may be changed as it runs. */
export interface IssuerBehaviour {
  /** True: each refresh voids the refresh token before it. */
  rotates: boolean
  /** The token endpoint's way to answer: late, not at all after it has done its work, or with a fault. */
  tokens: 'well' | 'late' | 'dies after' | 'fails' | 'redirects' | 'too long'
}

/** An authorization server that nobody here wrote, and an MCP server's metadata that name it. */
export interface TestIssuer {
  readonly issuer: string
  readonly endpoint: string
  readonly behaviour: IssuerBehaviour
  /** Counts the requests that have come, by path. */
  readonly asked: Map<string, number>
  /** The requests to the token endpoint, newest last. */
  readonly sent: string[]
  readonly provider: Provider
  /** Every token and code that it has given. */
  readonly given: Set<string>
  /** Tells what it knows of an access token. */
  readonly tokenOf: (value: string | undefined) => Promise<ProviderToken | undefined>
  /** Goes to the issuer's page as somebody, and says yes. Returns the address that the browser comes back by. */
  readonly approve: (location: string, login?: string) => Promise<URL>
}

interface IssuerOptions {
  readonly clients?: readonly object[]
  readonly features?: Readonly<Record<string, unknown>>
  readonly lifeS?: number
  /** Metadata in the place of its own, by its address. */
  readonly metadata?: (base: string) => unknown
}

const signing = generateKeyPair('RS256', { extractable: true })

/** Starts one on a loopback port. It stops with the test. */
export async function testIssuer(t: Test, options: IssuerOptions = {}): Promise<TestIssuer> {
  const behaviour: IssuerBehaviour = { rotates: true, tokens: 'well' }
  const [asked, sent, given] = [new Map<string, number>(), [] as string[], new Set<string>()]
  const held: { provider: Provider | null } = { provider: null }
  const server = createServer((req, res) => {
    const [path = ''] = (req.url ?? '').split('?')
    asked.set(path, (asked.get(path) ?? 0) + 1)
    void answer({ ...options, provider: held.provider, behaviour, sent, given, path, base: base() }, req, res)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.closeAllConnections()
    return new Promise((resolve) => server.close(resolve))
  })
  const base = (): string => `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const provider = new Provider(base(), await configurationOf(options, behaviour, () => held.provider))
  held.provider = provider
  return {
    ...{ issuer: base(), endpoint: `${base()}/mcp`, behaviour, asked, sent, given, provider },
    tokenOf: (value = '') => provider.AccessToken.find(value),
    approve: (location, login = 'alice') => approve(location, login),
  }
}

async function configurationOf(
  { clients, features, lifeS = 3600 }: IssuerOptions,
  behaviour: IssuerBehaviour,
  running: () => Provider | null,
): Promise<Record<string, unknown>> {
  const jwk = await exportJWK((await signing).privateKey)
  const own = {
    ...CLIENT,
    ...{ redirect_uris: [`${PEOPLE_URL}/oauth/account/callback`], response_types: ['code'] },
    grant_types: ['authorization_code', 'refresh_token'],
    token_endpoint_auth_method: 'client_secret_basic',
  }
  return {
    adapter: createMemoryAdapter(0),
    clients: clients ?? [own],
    jwks: { keys: [{ ...jwk, use: 'sig', alg: 'RS256', kid: 'one' }] },
    cookies: { keys: ['a key of the tests'] },
    scopes: ['openid', 'offline_access'],
    pkce: { required: () => true },
    ttl: {
      AccessToken: lifeS,
      IdToken: 120,
      Interaction: 600,
      Session: 3600,
      Grant: 86_400,
      RefreshToken: 86_400,
    },
    expiresWithSession: () => false,
    issueRefreshToken: () => true,
    rotateRefreshToken: () => behaviour.rotates,
    clientDefaults: {
      token_endpoint_auth_method: 'none',
      grant_types: ['authorization_code', 'refresh_token'],
    },
    features: {
      devInteractions: { enabled: false },
      dPoP: { enabled: true },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        useGrantedResource: () => true,
        getResourceServerInfo: () => ({ scope: 'files mail', audience: 'mcp', accessTokenTTL: lifeS }),
      },
      ...features,
    },
    interactions: { url: (_: unknown, { uid }: { uid: string }) => `/interaction/${uid}` },
    findAccount: (_: unknown, sub: string) => ({ accountId: sub, claims: () => ({ sub }) }),
    loadExistingGrant: async ({ oidc }: GrantContext) => {
      const provider = running()
      if (!provider || !oidc.session.accountId) return undefined
      const grant = new provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId })
      grant.addOIDCScope('openid offline_access')
      for (const resource of [oidc.params.resource].flat())
        if (resource) grant.addResourceScope(resource, 'files mail')
      await grant.save()
      return grant
    },
  }
}

interface GrantContext {
  readonly oidc: {
    readonly session: { readonly accountId?: string }
    readonly client: { readonly clientId: string }
    readonly params: { readonly resource?: string | readonly string[] }
  }
}

interface Answering extends Pick<IssuerOptions, 'metadata'> {
  readonly provider: Provider | null
  readonly behaviour: IssuerBehaviour
  readonly sent: string[]
  readonly given: Set<string>
  readonly path: string
  readonly base: string
}

/** Later than a gateway waits for an issuer. ms. */
const LATE_MS = 5_500

async function answer(of: Answering, req: IncomingMessage, res: ServerResponse): Promise<void> {
  const { provider, path, base, behaviour } = of
  if (!provider) return void res.writeHead(503).end()
  if (path === '/.well-known/oauth-protected-resource/mcp')
    return void res
      .writeHead(200, { 'content-type': 'application/json' })
      .end(JSON.stringify({ resource: `${base}/mcp`, authorization_servers: [base] }))
  if (of.metadata && path.startsWith('/.well-known/'))
    return void res
      .writeHead(200, { 'content-type': 'application/json' })
      .end(JSON.stringify(of.metadata(base)))
  if (path.startsWith('/interaction/')) {
    const { as: login = '' } = Object.fromEntries(new URL(req.url ?? '', base).searchParams)
    return void provider.interactionFinished(
      req,
      res,
      login === '' ? { error: 'access_denied' } : { login: { accountId: login } },
    )
  }
  if (path === '/token/revocation' && behaviour.tokens === 'fails') return void res.writeHead(500).end('{}')
  if (path === '/token') {
    req.on('data', (chunk: Buffer) => of.sent.push(chunk.toString()))
    if (behaviour.tokens === 'fails') return void res.writeHead(500).end('{}')
    if (behaviour.tokens === 'redirects')
      return void res.writeHead(307, { location: `${base}/elsewhere` }).end()
    if (behaviour.tokens === 'too long') return void res.writeHead(200).end('x'.repeat(65_537))
    if (behaviour.tokens === 'late') await delay(LATE_MS, undefined, { ref: false })
    noteTokens(res, of.given)
    // The work is done, and nobody hears of it.
    if (behaviour.tokens === 'dies after') res.end = () => res.destroy()
  }
  await provider.callback()(req, res)
}

/** Keeps the tokens of an answer, whether it is heard or not. */
function noteTokens(res: ServerResponse, given: Set<string>): void {
  const end = res.end.bind(res)
  res.end = (body?: unknown) => {
    for (const [, token = ''] of String(body).matchAll(/"(?:access|refresh)_token":"([^"]+)"/g))
      given.add(token)
    return end(body)
  }
}

const MAX_STEPS = 10

async function approve(location: string, login: string): Promise<URL> {
  const cookies = new Map<string, string>()
  let url = new URL(location)
  for (let step = 0; step < MAX_STEPS; step += 1) {
    if (url.origin === PEOPLE_URL) return url
    if (url.pathname.startsWith('/interaction/')) url.searchParams.set('as', login)
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join('; ')
    const answered = await fetch(url, { redirect: 'manual', headers: { cookie } })
    for (const line of answered.headers.getSetCookie()) {
      const [name = '', value = ''] = (line.split(';')[0] ?? '').split('=')
      cookies.set(name, value)
    }
    const next = answered.headers.get('location')
    if (next === null) throw new Error(`${answered.status} ${await answered.text()}`)
    url = new URL(next, url)
  }
  throw new Error('the way never ends')
}
