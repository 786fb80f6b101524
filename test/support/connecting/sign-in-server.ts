import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { exportJWK, generateKeyPair } from 'jose'
import Provider from 'oidc-provider'
import { createMemoryAdapter } from 'oidc-provider/lib/adapters/memory_adapter.js'
import type { Test } from 'tap'
import { PEOPLE_URL } from '../people/door.ts'

/** An authorization server of MCP servers that nobody here wrote, on a loopback port of its own. */
export interface SignInServer {
  readonly url: string
  /** The requests that have come, by path. */
  readonly asked: Map<string, number>
  /** Finds whose token it is, and what it may do; null: nobody's. */
  readonly holderOf: (authorization: string | undefined) => Promise<TokenHolder | null>
}

interface TokenHolder {
  readonly subject: string
  readonly scopes: readonly string[]
}

const SCOPES = ['mail', 'files', 'admin']
const signing = generateKeyPair('RS256', { extractable: true })

/** Starts an issuer at which everybody exists who types in a name, and refuses only `nobody`. */
export async function signInServer(t: Test): Promise<SignInServer> {
  const asked = new Map<string, number>()
  const made: { provider?: Provider } = {}
  const server = createServer((req, res) => {
    const [path = ''] = (req.url ?? '').split('?')
    asked.set(path, (asked.get(path) ?? 0) + 1)
    if (made.provider) void serve(made.provider, path, req, res)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(async () => {
    const closed = new Promise<void>((resolve) => server.close(() => resolve()))
    server.closeAllConnections()
    await closed
  })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const provider = new Provider(url, await configurationOf(() => provider))
  made.provider = provider
  return {
    url,
    asked,
    holderOf: async (authorization = '') => {
      const token = await provider.AccessToken.find(authorization.replace(/^Bearer /, ''))
      if (!token?.accountId) return null
      return { subject: token.accountId, scopes: (token.scope ?? '').split(' ') }
    },
  }
}

async function serve(
  provider: Provider,
  path: string,
  req: IncomingMessage,
  res: ServerResponse,
): Promise<void> {
  if (!path.startsWith('/interaction/')) return provider.callback()(req, res)
  const accountId = new URLSearchParams((await buffer(req)).toString()).get('login') ?? ''
  const isKnown = req.method === 'POST' && accountId !== 'nobody'
  await provider.interactionFinished(
    req,
    res,
    isKnown ? { login: { accountId } } : { error: 'access_denied' },
  )
}

async function configurationOf(provider: () => Provider): Promise<Record<string, unknown>> {
  const jwk = await exportJWK((await signing).privateKey)
  return {
    adapter: createMemoryAdapter(0),
    clients: [
      {
        client_id: 'sallyport',
        token_endpoint_auth_method: 'none',
        redirect_uris: [`${PEOPLE_URL}/oauth/account/callback`],
        response_types: ['code'],
        grant_types: ['authorization_code', 'refresh_token'],
      },
    ],
    jwks: { keys: [{ ...jwk, use: 'sig', alg: 'RS256', kid: 'one' }] },
    cookies: { keys: ['a key of the tests'] },
    scopes: ['openid', 'offline_access'],
    features: {
      devInteractions: { enabled: false },
      revocation: { enabled: true },
      dPoP: { enabled: false },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => undefined,
        useGrantedResource: () => true,
        getResourceServerInfo: () => ({ scope: SCOPES.join(' '), accessTokenFormat: 'opaque' }),
      },
    },
    issueRefreshToken: async () => true,
    rotateRefreshToken: true,
    pkce: { required: () => true },
    ttl: { AccessToken: 3600, Interaction: 600, Session: 3600, Grant: 3600, RefreshToken: 3600 },
    interactions: { url: (_: unknown, { uid }: { uid: string }) => `/interaction/${uid}` },
    findAccount: (_: unknown, sub: string) => ({ accountId: sub, claims: () => ({ sub }) }),
    loadExistingGrant: async ({ oidc }: { oidc: IssuerContext }) => {
      const { Grant } = provider()
      const grant = new Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId })
      grant.addOIDCScope('openid offline_access')
      for (const resource of [oidc.params.resource].flat())
        if (typeof resource === 'string') grant.addResourceScope(resource, oidc.params.scope ?? '')
      await grant.save()
      return grant
    },
  }
}

interface IssuerContext {
  readonly client: { readonly clientId: string }
  readonly session: { readonly accountId: string }
  readonly params: { readonly resource?: unknown; readonly scope?: string }
}
