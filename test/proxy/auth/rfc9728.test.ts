import { createHash } from 'node:crypto'
import * as oauth from 'oauth4webapi'
import t from 'tap'
import { bench } from '../../support/auth/bench.ts'
import { tlsFetch } from '../../support/auth/tls-fetch.ts'

// RFC 9728, RFC 8414 and the key set (docs/threats.md#rfc9728), read as a stranger reads them.

await t.test('D-31 what clients are told', async (t) => {
  const b = await bench(t)
  const { url } = b.gateway
  const get = async (path: string) => {
    const { status, headers, json } = await b.gateway.call(null, 'GET', path)
    t.strictSame([status, headers['content-type']], [200, 'application/json'], path)
    return json
  }

  await t.test('RFC 9728 §3.3 resource is the identifier that the URL was made of', async (t) => {
    for (const path of ['', '/v1/mcp']) {
      const json = await get(`/.well-known/oauth-protected-resource${path}`)
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
    const json = await get('/.well-known/oauth-authorization-server')
    t.match(json, { issuer: url, token_endpoint: `${url}/v1/auth/token`, response_types_supported: [] })
    t.strictSame(json.grant_types_supported, ['client_credentials'])
    t.strictSame(json.dpop_signing_alg_values_supported, ['ES256', 'PS256', 'EdDSA', 'Ed25519'])
  })

  await t.test('RFC 7517 the key set holds public keys, named by their thumbprint', async (t) => {
    const { keys } = await get('/.well-known/jwks.json')
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
    for (const path of ['/', '/v1/mcp']) {
      const resource = new URL(path, url)
      const found = await oauth.resourceDiscoveryRequest(resource, options)
      const { authorization_servers: servers } = await oauth.processResourceDiscoveryResponse(resource, found)
      t.strictSame(servers, [url], path)
    }
  })
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
  t.match(json, {
    resource: 'https://gateway.example/v1/mcp',
    authorization_servers: ['https://gateway.example'],
    dpop_bound_access_tokens_required: true,
  })
  const server = await b.gateway.call(null, 'GET', '/.well-known/oauth-authorization-server')
  t.equal(server.json.issuer, 'https://gateway.example')
})
