import { createHash } from 'node:crypto'
import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import { get } from 'node:https'
import { text } from 'node:stream/consumers'
import * as mcp from '@modelcontextprotocol/client'
import * as oauth from 'oauth4webapi'
import t from 'tap'
import { bench } from '../../support/auth/bench.ts'
import { tlsFetch } from '../../support/auth/tls-fetch.ts'
import type { TestGateway } from '../../support/gateway.ts'

// RFC 9728, RFC 8414 and the key set (docs/threats.md#rfc9728), read as a stranger reads them.

const MCP_DOORS = ['/v1/mcp', '/v1/mcp/mcpr_1', '/v1/mcpr_1/mcp']

await t.test('D-31 what clients are told', async (t) => {
  const b = await bench(t)
  const { url } = b.gateway
  const documentOf = async (path: string) => {
    const { status, headers, json } = await b.gateway.call(null, 'GET', path)
    t.strictSame([status, headers['content-type']], [200, 'application/json'], path)
    return json
  }

  await t.test('RFC 9728 §3.3 resource is the identifier that the URL was made of', async (t) => {
    for (const path of ['', ...MCP_DOORS]) {
      const json = await documentOf(`/.well-known/oauth-protected-resource${path}`)
      t.strictSame(json, {
        resource: url + path,
        authorization_servers: [url],
        jwks_uri: `${url}/.well-known/jwks.json`,
        bearer_methods_supported: ['header'],
        dpop_signing_alg_values_supported: ['ES256', 'PS256', 'EdDSA', 'Ed25519'],
        dpop_bound_access_tokens_required: false,
        tls_client_certificate_bound_access_tokens: true,
      })
    }
  })

  await t.test('RFC 8414 §2 the authorization server describes itself', async (t) => {
    const json = await documentOf('/.well-known/oauth-authorization-server')
    t.match(json, { issuer: url, token_endpoint: `${url}/v1/auth/token`, response_types_supported: [] })
    // The SDKs of MCP do not read a document without it.
    t.equal(json.authorization_endpoint, `${url}/v1/auth/authorize`)
    const asked = await b.gateway.call(null, 'GET', '/v1/auth/authorize?response_type=code&client_id=x')
    t.match(
      [asked.status, asked.json],
      [400, { error: 'unsupported_grant_type', reason: 'grant_unsupported' }],
    )
    t.strictSame(json.grant_types_supported, ['client_credentials'])
    t.strictSame(json.dpop_signing_alg_values_supported, ['ES256', 'PS256', 'EdDSA', 'Ed25519'])
  })

  await t.test('RFC 7517 the key set holds public keys, named by their thumbprint', async (t) => {
    const { keys } = await documentOf('/.well-known/jwks.json')
    t.equal(keys.length, 1)
    const [{ kid, kty, crv, x, y, alg, use, ...more }] = keys
    t.strictSame([kty, crv, alg, use, more], ['EC', 'P-256', 'ES256', 'sig', {}], 'and nothing private')
    t.equal(kid, createHash('sha256').update(JSON.stringify({ crv, kty, x, y })).digest('base64url'))
  })

  await t.test('oauth4webapi discovers both documents at the real gateway', async (t) => {
    const options = { [oauth.customFetch]: tlsFetch(t, b.gateway, null) }
    const issuer = new URL(url)
    const discovered = await oauth.discoveryRequest(issuer, { algorithm: 'oauth2', ...options })
    const server = await oauth.processDiscoveryResponse(issuer, discovered)
    t.equal(server.token_endpoint, `${url}/v1/auth/token`)
    for (const path of ['/', ...MCP_DOORS]) {
      const resource = new URL(path, url)
      const found = await oauth.resourceDiscoveryRequest(resource, options)
      const { authorization_servers: servers } = await oauth.processResourceDiscoveryResponse(resource, found)
      t.strictSame(servers, [url], path)
    }
  })
})

await t.test(
  'RFC 9728 §3.3 a client of MCP is led from its own URL to a token for that door alone',
  async (t) => {
    const b = await bench(t)
    const { port } = new URL(b.gateway.url)
    const fetchFn = tlsFetch(t, b.gateway, b.bot)
    const provider = {
      redirectUrl: undefined,
      clientMetadata: { redirect_uris: [] },
      clientInformation: () => ({ client_id: b.bot.id }),
      tokens: () => undefined,
      prepareTokenRequest: () => new URLSearchParams({ grant_type: 'client_credentials' }),
    } as unknown as mcp.OAuthClientProvider
    for (const host of ['localhost', '127.0.0.1']) {
      for (const path of MCP_DOORS) {
        const door = `https://${host}:${port}${path}`
        const init = { method: 'POST', headers: { authorization: 'DPoP x' }, body: '{}' }
        const { status, headers } = await fetchFn(door, init)
        const [, named = ''] = /resource_metadata="([^"]+)"/.exec(headers.get('www-authenticate') ?? '') ?? []
        t.strictSame(
          [status, named],
          [401, door.replace('/v1/', '/.well-known/oauth-protected-resource/v1/')],
        )
        const found = await mcp.discoverOAuthServerInfo(door, {
          fetchFn: fetchFn as mcp.FetchLike,
          resourceMetadataUrl: new URL(named),
        })
        t.equal(found.resourceMetadata?.resource, door)
        const resource = await mcp.selectResourceURL(door, provider, found.resourceMetadata)
        const granted = await mcp.fetchToken(provider, found.authorizationServerUrl, {
          fetchFn: fetchFn as mcp.FetchLike,
          ...(found.authorizationServerMetadata && { metadata: found.authorizationServerMetadata }),
          ...(resource && { resource }),
        })
        const opens = async (at: string): Promise<boolean> => {
          const { status: answered } = await fetchFn(`https://${host}:${port}${at}`, {
            ...init,
            headers: { authorization: `Bearer ${granted.access_token}` },
          })
          return answered !== 401
        }
        const scoped = path !== '/v1/mcp'
        t.strictSame(await Promise.all([...MCP_DOORS, '/v1/mcp/mcpr_2', '/v1/mcpr_2/mcp'].map(opens)), [
          !scoped,
          true,
          true,
          !scoped,
          !scoped,
        ])
      }
    }
  },
)

await t.test('RFC 9728 §3.3 no document, and no challenge, repeats what is no name of a door', async (t) => {
  const b = await bench(t)
  for (const path of ['/v1/mcp/%22', '/v1/%22/mcp', `/v1/mcp/${'x'.repeat(129)}`]) {
    const asked = await b.gateway.call(null, 'GET', `/.well-known/oauth-protected-resource${path}`)
    t.strictSame([asked.status, asked.json.reason], [404, 'not_found'], path)
    const { status, headers } = await b.send(null, { path, headers: { authorization: 'DPoP x' }, body: {} })
    t.equal(status, 401)
    t.match(headers['www-authenticate'], `"${b.gateway.url}/.well-known/oauth-protected-resource/v1/mcp"`)
  }
})

await t.test('D-31 the first public URL is the issuer, and required mode is told', async (t) => {
  const b = await bench(t, {
    settings: {
      MCP_PROXY_PUBLIC_URLS: 'https://gateway.example,https://other.example',
      MCP_PROXY_EGRESS_DPOP_MODE: 'required',
    },
  })
  const { json } = await b.gateway.call(null, 'GET', '/.well-known/oauth-protected-resource/v1/mcp', {
    headers: { 'x-forwarded-host': 'evil.example' },
  })
  const path = '/.well-known/oauth-protected-resource/v1/mcp/mcpr_1'
  for (const [host, base] of [
    ['other.example', 'https://other.example'],
    ['OTHER.example:443', 'https://other.example'],
    ['evil.example', 'https://gateway.example'],
  ] as const) {
    const asked = { json: await documentAt(b.gateway, path, host) }
    t.match(asked.json, {
      resource: `${base}/v1/mcp/mcpr_1`,
      authorization_servers: ['https://gateway.example'],
    })
  }
  t.match(json, {
    resource: 'https://gateway.example/v1/mcp',
    authorization_servers: ['https://gateway.example'],
    dpop_bound_access_tokens_required: true,
  })
  const server = await b.gateway.call(null, 'GET', '/.well-known/oauth-authorization-server')
  t.equal(server.json.issuer, 'https://gateway.example')
})

/** The document that is served at a path to who names that host. */
async function documentAt({ url, ca }: TestGateway, path: string, host: string): Promise<unknown> {
  const req = get(url + path, { ca, servername: 'localhost', headers: { host }, agent: false })
  const [res] = (await once(req, 'response')) as [IncomingMessage]
  return JSON.parse(await text(res))
}
