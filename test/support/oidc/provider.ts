import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { Agent } from 'node:https'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { exportJWK, generateKeyPair, type JWTPayload, SignJWT } from 'jose'
import Provider from 'oidc-provider'
import { createMemoryAdapter } from 'oidc-provider/lib/adapters/memory_adapter.js'
import type { Test } from 'tap'
import { ask, type TestGateway } from '../gateway.ts'

export const CLIENT_ID = 'sallyport'
export const CLIENT_SECRET = 'the-secret-of-the-client-at-the-provider'

/** Somebody whom the provider knows, by the name that is typed in. */
export interface Account {
  readonly email?: string
  readonly email_verified?: boolean
  readonly groups?: readonly string[]
  /** How a sign-in of theirs is said to have been. */
  readonly acr?: string
  readonly amr?: readonly string[]
}

/** An identity provider that nobody here wrote, on a loopback port of its own. */
export interface TestProvider {
  readonly issuer: string
  /** By subject. Alice and bob are there; a test adds others, or changes them. */
  readonly accounts: Map<string, Account>
  /** How many requests have come, by path. */
  readonly asked: Map<string, number>
  /** Registers a gateway as its client. */
  readonly register: (gateway: Pick<TestGateway, 'url' | 'ca'>) => Promise<void>
  /** The provider itself, once a gateway is registered. */
  readonly provider: () => Provider
  /** Signs claims with the provider's key, as its own tokens are. */
  readonly sign: (claims: JWTPayload, header: Readonly<Record<string, string>>) => Promise<string>
  /** Goes away: its port answers nobody. */
  readonly stop: () => Promise<void>
}

const ALICE: Account = {
  email: 'alice@example.com',
  email_verified: true,
  groups: ['staff', 'platform'],
  acr: 'urn:example:two-factors',
  amr: ['pwd', 'otp'],
}
const BOB: Account = {
  email: 'bob@example.com',
  email_verified: true,
  groups: ['staff'],
  acr: 'urn:example:password',
  amr: ['pwd'],
}

/** Starts an identity provider. It stops with the test. */
export async function testProvider(t: Test): Promise<TestProvider> {
  const accounts = new Map([
    ['alice', ALICE],
    ['bob', BOB],
  ])
  const asked = new Map<string, number>()
  let running: Provider | null = null
  const server = createServer((req, res) => {
    const [path = ''] = (req.url ?? '').split('?')
    asked.set(path, (asked.get(path) ?? 0) + 1)
    void serve(running, accounts, path, req, res)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const stop = async (): Promise<void> => {
    const closed = new Promise<void>((resolve) => server.close(() => resolve()))
    server.closeAllConnections()
    await closed
  }
  t.teardown(stop)
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return {
    issuer,
    accounts,
    asked,
    register: async (gateway) => {
      running = new Provider(issuer, await configuration(accounts, gateway, () => running))
    },
    provider: () => {
      if (!running) throw new Error('no gateway is registered')
      return running
    },
    sign: async (claims, header) =>
      new SignJWT(claims)
        .setProtectedHeader({ alg: 'RS256', kid: 'one', ...header })
        .sign((await signing).privateKey),
    stop,
  }
}

async function serve(
  provider: Provider | null,
  accounts: ReadonlyMap<string, Account>,
  path: string,
  req: IncomingMessage,
  res: ServerResponse,
): Promise<void> {
  if (!provider) res.writeHead(503).end()
  else if (path.startsWith('/interaction/')) await signIn(provider, accounts, req, res)
  else await provider.callback()(req, res)
}

/** The provider's own page, on which somebody types in who they are. */
async function signIn(
  provider: Provider,
  accounts: ReadonlyMap<string, Account>,
  req: IncomingMessage,
  res: ServerResponse,
): Promise<void> {
  const form = new URLSearchParams((await buffer(req)).toString())
  const accountId = form.get('login') ?? ''
  const account = accounts.get(accountId)
  if (req.method === 'POST' && account) {
    const { acr, amr } = account
    const login = { accountId, ...(acr !== undefined && { acr }), ...(amr && { amr }) }
    return provider.interactionFinished(req, res, { login })
  }
  if (req.method === 'POST') return provider.interactionFinished(req, res, { error: 'access_denied' })
  await provider.interactionDetails(req, res)
  res.writeHead(200, { 'content-type': 'text/html' }).end(
    `<!doctype html><title>Provider</title><form method="post">
<label>Name <input name="login" autofocus></label><button>Continue</button></form>`,
  )
}

/** The provider's own page on which somebody says that the session there shall end, too. */
function signOutPage(ctx: { body: string }, form: string): void {
  const button = '<button name="logout" value="yes" form="op.logoutForm">Sign out</button>'
  ctx.body = `<!doctype html><title>Provider</title>${form}${button}`
}

const CLAIMS = { email: ['email', 'email_verified'], groups: ['groups'], amr: null }

// Made once: a key takes longer than all the rest.
const signing = generateKeyPair('RS256', { extractable: true })

async function configuration(
  accounts: ReadonlyMap<string, Account>,
  { url, ca }: Pick<TestGateway, 'url' | 'ca'>,
  provider: () => Provider | null,
): Promise<Record<string, unknown>> {
  const jwk = await exportJWK((await signing).privateKey)
  return {
    adapter: createMemoryAdapter(0),
    clients: [clientOf(url)],
    jwks: { keys: [{ ...jwk, use: 'sig', alg: 'RS256', kid: 'one' }] },
    cookies: { keys: ['a key of the tests'] },
    acrValues: [ALICE.acr, BOB.acr],
    claims: CLAIMS,
    scopes: ['openid', 'email', 'groups'],
    features: {
      devInteractions: { enabled: false },
      claimsParameter: { enabled: true },
      backchannelLogout: { enabled: true },
      rpInitiatedLogout: { enabled: true, logoutSource: signOutPage },
    },
    pkce: { required: () => true },
    ttl: { AccessToken: 60, IdToken: 120, Interaction: 600, Session: 3600, Grant: 3600 },
    interactions: { url: (_: unknown, { uid }: { uid: string }) => `/interaction/${uid}` },
    findAccount: (_: unknown, sub: string) => accountOf(accounts, sub),
    // What the client asks for is granted without a question.
    loadExistingGrant: async ({ oidc }: { oidc: { session: { accountId: string } } }) => {
      const running = provider()
      if (!running) throw new Error('no gateway is registered')
      const grant = new running.Grant({ clientId: CLIENT_ID, accountId: oidc.session.accountId })
      grant.addOIDCScope('openid email groups')
      grant.addOIDCClaims(['email', 'email_verified', 'groups'])
      await grant.save()
      return grant
    },
    fetch: deliverer(ca),
  }
}

const clientOf = (url: string) => ({
  client_id: CLIENT_ID,
  client_secret: CLIENT_SECRET,
  redirect_uris: [`${url}/proxy/oidc/callback`, 'https://people.test/oauth/callback'],
  response_types: ['code'],
  grant_types: ['authorization_code'],
  backchannel_logout_uri: `${url}/proxy/oidc/backchannel-logout`,
  backchannel_logout_session_required: true,
})

function accountOf(accounts: ReadonlyMap<string, Account>, sub: string) {
  const account = accounts.get(sub)
  if (!account) return undefined
  const { email, email_verified, groups, amr } = account
  const said = { email, email_verified, groups, amr }
  const known = Object.entries(said).filter(([, value]) => value !== undefined)
  return { accountId: sub, claims: () => ({ sub, ...Object.fromEntries(known) }) }
}

/** What the provider sends to its clients goes to a gateway whose root nobody else knows. */
const deliverer =
  (ca: string) =>
  async (url: string, { method, headers, body }: RequestInit): Promise<{ readonly status: number }> => {
    const agent = new Agent({ ca })
    const text = await new Response(body ?? null).text()
    const sent = { headers: Object.fromEntries(new Headers(headers)), body: text, agent }
    const { status } = await ask(url, method ?? 'GET', sent)
    agent.destroy()
    return { status }
  }
