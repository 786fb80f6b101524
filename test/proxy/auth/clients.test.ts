import * as dpop from 'dpop'
import * as oauth from 'oauth4webapi'
import t from 'tap'
import { tlsFetch } from '../../support/auth/tls-fetch.ts'
import { CHAT, type Identity, sharedGateway, type TestGateway } from '../../support/gateway.ts'

// Two clients that nobody here wrote, used as their documentation says, with no workaround.

/** What a client of oauth4webapi needs to know, found by discovery. */
async function discovered(t: Test, gateway: TestGateway, who: Identity) {
  const options = { [oauth.customFetch]: tlsFetch(t, gateway, who) }
  const issuer = new URL(gateway.url)
  const response = await oauth.discoveryRequest(issuer, { algorithm: 'oauth2', ...options })
  return {
    options,
    server: await oauth.processDiscoveryResponse(issuer, response),
    client: { client_id: who.id } as oauth.Client,
  }
}

for (const algorithm of ['ES256', 'PS256', 'Ed25519'] as const) {
  await t.test(
    `§1 oauth4webapi signs in and calls with a ${algorithm} key, one retry for each nonce`,
    async (t) => {
      const gateway = await sharedGateway(t)
      const bot = await gateway.enroll('bot', ['llm.chat'])
      const { server, client, options } = await discovered(t, gateway, bot)
      const handle = oauth.DPoP(client, await oauth.generateKeyPair(algorithm))

      const ask = (): Promise<Response> =>
        oauth.clientCredentialsGrantRequest(
          server,
          client,
          oauth.TlsClientAuth(),
          { scope: 'llm.chat' },
          {
            ...options,
            DPoP: handle,
          },
        )
      const grant = async () => oauth.processClientCredentialsResponse(server, client, await ask())
      const refused = await caught(grant())
      t.ok(oauth.isDPoPNonceError(refused), 'the first answer hands out the nonce')
      const granted = await grant()
      t.match(granted, { token_type: 'dpop', scope: 'llm.chat', expires_in: 900 })

      const call = (): Promise<Response> =>
        oauth.protectedResourceRequest(
          granted.access_token,
          'POST',
          new URL('/v1/chat/completions', gateway.url),
          new Headers({ 'content-type': 'application/json' }),
          JSON.stringify(CHAT),
          { ...options, DPoP: handle },
        )
      t.ok(oauth.isDPoPNonceError(await caught(call())), 'the door’s own nonce is another one')
      for (let i = 0; i < 3; i += 1) {
        const { status } = await call()
        t.equal(status, 200, 'from then on no retry is needed')
      }
    },
  )
}

await t.test('RFC 8705 oauth4webapi signs in with the certificate alone', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const { server, client, options } = await discovered(t, gateway, bot)
  const response = await oauth.clientCredentialsGrantRequest(
    server,
    client,
    oauth.TlsClientAuth(),
    {},
    options,
  )
  const { access_token: token, token_type: type } = await oauth.processClientCredentialsResponse(
    server,
    client,
    response,
  )
  t.equal(type, 'bearer')
  const { status } = await oauth.protectedResourceRequest(
    token,
    'GET',
    new URL('/v1/models', gateway.url),
    new Headers(),
    undefined,
    options,
  )
  t.equal(status, 200)
})

await t.test('RFC 6749 §5.2 RFC 6750 §3 oauth4webapi reads each refusal', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const { server, client, options } = await discovered(t, gateway, bot)
  const ask = async (as: oauth.Client, parameters: Record<string, string>): Promise<unknown> => {
    const response = await oauth.clientCredentialsGrantRequest(
      server,
      as,
      oauth.TlsClientAuth(),
      parameters,
      options,
    )
    return caught(oauth.processClientCredentialsResponse(server, as, response))
  }
  t.match(await ask(client, { scope: 'mcp.tools.list' }), { error: 'invalid_scope', status: 400 })
  t.match(await ask(client, { resource: 'https://other.example' }), { error: 'invalid_target', status: 400 })
  t.match(await ask({ client_id: 'acme::other' }, {}), {
    code: 'OAUTH_WWW_AUTHENTICATE_CHALLENGE',
    status: 401,
    cause: [{ scheme: 'dpop', parameters: { error: 'invalid_client' } }],
  })
  const call = oauth.protectedResourceRequest(
    'junk',
    'GET',
    new URL('/v1/models', gateway.url),
    new Headers(),
    undefined,
    { ...options, DPoP: oauth.DPoP(client, await oauth.generateKeyPair('ES256')) },
  )
  t.match(await caught(call), {
    code: 'OAUTH_WWW_AUTHENTICATE_CHALLENGE',
    status: 401,
    cause: [{ scheme: 'dpop', parameters: { error: 'invalid_token', algs: 'ES256 PS256 EdDSA Ed25519' } }],
  })
})

for (const algorithm of ['ES256', 'PS256', 'Ed25519'] as const) {
  await t.test(`§1 proofs of dpop by a ${algorithm} key are accepted`, async (t) => {
    const gateway = await sharedGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const fetch = tlsFetch(t, gateway, bot)
    const keys = await dpop.generateKeyPair(algorithm)
    const nonces = new Map<string, string>()
    // As a user of the package would write it: the nonce of the last answer, and one retry.
    const send = async (path: string, body: string, type: string, token?: string): Promise<Response> => {
      const url = gateway.url + path
      for (let attempt = 0; ; attempt += 1) {
        const proof = await dpop.generateProof(keys, url, 'POST', nonces.get(path), token)
        const headers = {
          dpop: proof,
          'content-type': type,
          ...(token !== undefined && { authorization: `DPoP ${token}` }),
        }
        const response = await fetch(url, { method: 'POST', headers, body })
        const nonce = response.headers.get('dpop-nonce')
        if (nonce !== null) nonces.set(path, nonce)
        if (response.ok || attempt > 0) return response
      }
    }
    const form = 'application/x-www-form-urlencoded'
    const issued = await send('/v1/auth/token', 'grant_type=client_credentials', form)
    t.equal(issued.status, 200)
    const { access_token: token, token_type: type } = (await issued.json()) as Record<string, string>
    t.equal(type, 'DPoP')
    const chat = await send('/v1/chat/completions', JSON.stringify(CHAT), 'application/json', token)
    t.equal(chat.status, 200, 'with a token')
    t.equal(
      (await send('/v1/messages', JSON.stringify({ ...CHAT, model: 'claude-x' }), 'application/json')).status,
      200,
    )
    const { cnf } = JSON.parse(Buffer.from(token?.split('.')[1] ?? '', 'base64url').toString())
    t.equal(
      cnf.jkt,
      await dpop.calculateThumbprint(keys.publicKey),
      'and it names the key as the package does',
    )
  })
}

type Test = Parameters<typeof tlsFetch>[0]

/** What a promise was rejected with. */
async function caught(call: Promise<unknown>): Promise<unknown> {
  try {
    await call
  } catch (error) {
    return error
  }
  throw new Error('it was not refused')
}
