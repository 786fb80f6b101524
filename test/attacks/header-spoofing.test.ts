import t from 'tap'
import { CHAT, sharedGateway, testGateway } from '../support/gateway.ts'
import { chatBytes, rawConnect, requestBytes, statuses } from '../support/raw.ts'
import { settledCalls } from '../support/settled.ts'

// So that a proof made of nothing is passed over rather than refused, and could be passed on.
const NO_DPOP = { MCP_PROXY_EGRESS_DPOP_MODE: 'off' }

t.test('M-02 a certificate in a header is nobody', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const nobody = await gateway.enroll('nobody', [])
  const pem = encodeURIComponent(bot.cert)
  const der = bot.cert.replace(/-----END[\s\S]*|-----BEGIN CERTIFICATE-----|\s/g, '')
  const spoofed: readonly Record<string, string>[] = [
    { 'x-client-cert': pem },
    { 'x-client-certificate': pem },
    {
      'x-forwarded-client-cert': `Cert="${pem}";Subject="CN=acme::bot";URI=spiffe://sallyport.local/acme/bot`,
    },
    { 'x-ssl-client-cert': pem },
    { 'x-ssl-client-verify': 'SUCCESS', 'x-ssl-client-s-dn': 'CN=acme::bot' },
    { 'ssl-client-cert': pem },
    { 'x-arr-clientcert': der },
    { 'client-cert': `:${der}:`, 'client-cert-chain': `:${der}:` },
    { 'x-amzn-mtls-clientcert': pem },
    {
      'x-principal': 'acme::bot',
      'x-agent-id': 'acme::bot',
      'x-capability': 'llm.chat',
      'x-llm-chat-capability': 'llm.chat',
    },
    {
      forwarded: 'for=127.0.0.1',
      'x-forwarded-for': '127.0.0.1',
      'x-real-ip': '127.0.0.1',
      'x-original-url': '/v1/models',
    },
  ]
  for (const headers of spoofed) {
    const name = Object.keys(headers)[0]
    const stranger = await gateway.call(null, 'POST', '/v1/chat/completions', { headers, body: CHAT })
    t.match(
      stranger,
      { status: 401, json: { reason: 'certificate_required' } },
      `${name} without a certificate`,
    )
    const other = await gateway.call(nobody, 'POST', '/v1/chat/completions', { headers, body: CHAT })
    t.match(
      other,
      { status: 403, json: { reason: 'capability_missing' } },
      `${name} beside another certificate`,
    )
  }
  t.equal(gateway.upstream.seen.length, 0, 'nothing was dispatched')
  const { denied } = await settledCalls(gateway)
  t.ok(
    denied.every(({ principal_id: id }) => id === nobody.id),
    'every refusal is of the certificate that TLS delivered',
  )
})

t.test('T3 threats 11, 16: of the caller nothing reaches a provider but what is on the list', async (t) => {
  const gateway = await testGateway(t, { settings: NO_DPOP })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const private_ = [
    'x-admin-secret: canary',
    'authorization: Bearer canary',
    'x-api-key: canary',
    'api-key: canary',
    'dpop: canary',
    'cookie: canary=canary',
    'proxy-authorization: Basic canary',
    'proxy-connection: canary',
    'te: trailers, canary',
    'trailer: canary',
    'keep-alive: canary',
    'upgrade: canary',
    'x-llm-capability: canary',
    'x-mcp-tools-capability: canary',
    'x-required-capability: canary',
    'x-client-cert: canary',
    'client-cert: canary',
    'x-forwarded-client-cert: canary',
    'x-forwarded-for: canary',
    'x-forwarded-host: canary',
    'forwarded: for=canary',
    'via: 1.1 canary',
    'referer: https://canary.example',
    // A foreign one is refused: test/attacks/pages.test.ts.
    `origin: ${gateway.url}`,
    'openai-organization: canary',
    'x-injected: canary',
    'x-http-method-override: DELETE',
    'accept-encoding: canary',
    'expect: 100-continue',
  ]
  const connection = await rawConnect(t, gateway, bot)
  connection.send(
    chatBytes('gpt-test', [
      'connection: close, x-injected, user-agent, accept',
      'user-agent: canary',
      ...private_,
    ]),
  )
  t.same(statuses(await connection.closed), [200])
  const [seen] = gateway.upstream.seen
  t.equal(gateway.upstream.seen.length, 1)
  t.notMatch(seen?.rawHeaders.join('\n'), /canary|override/i)
  t.same(
    Object.keys(seen?.headers ?? {}).toSorted(),
    ['accept-encoding', 'authorization', 'cdn-loop', 'connection', 'content-length', 'content-type', 'host'],
    'and nothing else is made up',
  )
  t.match(seen?.headers, {
    authorization: 'Bearer sk-upstream-openai',
    host: new URL(gateway.upstream.url).host,
  })
})

t.test('threat 11 a Connection header cannot take our own headers away', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const connection = await rawConnect(t, gateway, bot)
  const nominated =
    'connection: close, authorization, host, content-length, content-type, x-api-key, anthropic-version'
  const body = JSON.stringify({ model: 'claude-test', messages: [], max_tokens: 1 })
  connection.send(requestBytes('POST', '/v1/messages', [nominated, 'anthropic-version: 1999-01-01'], body))
  t.same(statuses(await connection.closed), [200])
  t.match(gateway.upstream.seen[0], {
    headers: {
      'x-api-key': 'sk-upstream-anthropic',
      'content-length': String(body.length),
      'content-type': 'application/json',
    },
  })
  t.equal(gateway.upstream.seen[0]?.body.toString(), body)
})

t.test('T2 Expect changes nothing of what a provider is sent', async (t) => {
  const gateway = await testGateway(t, { settings: NO_DPOP })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const secrets = ['authorization: Bearer canary', 'dpop: canary']
  for (const expect of [[], ['expect: 100-continue'], ['expect: 100-Continue']]) {
    const connection = await rawConnect(t, gateway, bot)
    connection.send(chatBytes('gpt-test', ['connection: close', ...secrets, ...expect]))
    t.same(statuses(await connection.closed), [200])
  }
  const [plain, ...expecting] = gateway.upstream.seen.map(({ headers }) => headers)
  t.equal(expecting.length, 2)
  for (const headers of expecting) t.same(headers, plain)
  t.notMatch(JSON.stringify(gateway.upstream.seen), /canary/)
})

t.test('T2 a stranger who expects 100-continue is refused before the body is asked for', async (t) => {
  const gateway = await sharedGateway(t)
  const connection = await rawConnect(t, gateway, null)
  connection.send(
    requestBytes('POST', '/v1/chat/completions', ['expect: 100-continue', 'content-length: 100000']),
  )
  const received = await connection.closed
  t.same(statuses(received), [401])
  t.notMatch(received, /100 Continue/)
})

t.test('T1 only POST goes to a provider, whatever the body is framed as', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const smuggled = 'GET /smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n'
  const methods = [
    'GET',
    'HEAD',
    'PUT',
    'PATCH',
    'DELETE',
    'OPTIONS',
    'PROPFIND',
    'SEARCH',
    'QUERY',
    'LOCK',
    'M-SEARCH',
  ]
  const framings: readonly (readonly [readonly string[], string])[] = [
    [[`content-length: ${smuggled.length}`], smuggled],
    [['transfer-encoding: chunked'], `${smuggled.length.toString(16)}\r\n${smuggled}\r\n0\r\n\r\n`],
  ]
  for (const method of methods) {
    for (const [headers, body] of framings) {
      const connection = await rawConnect(t, gateway, bot)
      connection.send(requestBytes(method, '/v1/chat/completions', ['connection: close', ...headers]) + body)
      t.same(statuses(await connection.closed), [405], `${method} ${headers.join()}`)
    }
  }
  const body = JSON.stringify(CHAT)
  const override = {
    headers: { 'x-http-method-override': 'POST', 'content-length': String(body.length) },
    body,
  }
  t.equal((await gateway.call(bot, 'GET', '/v1/chat/completions', override)).status, 405)
  t.equal(gateway.upstream.seen.length, 0, 'nothing was dispatched')
})
