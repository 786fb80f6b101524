import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { Agent, fetch as undiciFetch } from 'undici'
import { mcpOptions } from '../../proxy/mcp/options.ts'
import { readIdentity } from '../../scripts/client/identity/identity.ts'
import { startSidecar } from '../../scripts/client/sidecar.ts'
import { clientSession } from '../../scripts/client/signing/session.ts'
import { arrivals, identityDirectory } from '../support/clients/identity.ts'
import { type Answered, CHAT, type TestGateway, testGateway } from '../support/gateway.ts'
import { mcpStage } from '../support/mcp/stage.ts'
import { statuses } from '../support/raw.ts'

// What a browser adds to what a page sends, and the page can neither set nor leave out.

/** Of a page that is not ours. The last two are without an `Origin`: pictures, links and forms by GET. */
const foreign = (url: string): readonly Record<string, string>[] => [
  { origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' },
  { origin: 'https://evil.example' },
  { origin: 'null' },
  { origin: '' },
  { origin: `${url}.evil.example` },
  { origin: url.replace(/:\d+$/, '') },
  { origin: url.replace(/^https/, 'http').replace(/:\d+$/, '') },
  otherScheme(url),
  { origin: `blob:${url}/page` },
  { origin: url, 'sec-fetch-site': 'cross-site' },
  { origin: url, 'sec-fetch-site': 'same-site' },
  { 'sec-fetch-site': 'same-site', 'sec-fetch-mode': 'no-cors' },
  { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' },
  { 'sec-fetch-site': 'same-origin, cross-site' },
  { 'sec-fetch-site': '' },
]

const otherScheme = (url: string) => ({
  origin: url.startsWith('https') ? url.replace('https', 'http') : url.replace('http', 'https'),
})

/** Of a page of ours, of an address that was typed, and of what is no browser. */
const own = (url: string): readonly Record<string, string>[] => [
  {},
  { 'sec-fetch-mode': 'cors' },
  { 'sec-fetch-site': 'none', 'sec-fetch-mode': 'navigate' },
  { 'sec-fetch-site': 'same-origin' },
  { origin: url, 'sec-fetch-site': 'same-origin' },
]

/** Every route where a certificate is worth something. */
const ROUTES: readonly (readonly [method: string, path: string, body?: unknown])[] = [
  ['POST', '/v1/chat/completions', CHAT],
  ['POST', '/v1/llm/chat', CHAT],
  ['POST', '/v1/responses', { model: 'gpt-5-mini', input: 'hi' }],
  ['POST', '/v1/messages', { model: 'claude-haiku-4-5', max_tokens: 1, messages: [] }],
  ['GET', '/v1/models'],
  ['GET', '/v1/egress/models'],
  ['POST', '/v1/auth/token', 'grant_type=client_credentials'],
  ['POST', '/v1/auth/login-challenge'],
  ['POST', '/v1/auth/sign-challenged-assertion', {}],
  ['POST', '/v1/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/list' }],
  ['POST', '/v1/mcp/files', { jsonrpc: '2.0', id: 1, method: 'tools/list' }],
  ['DELETE', '/v1/mcp'],
  ['DELETE', '/v1/mcp/files'],
  ['POST', '/v1/files/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/list' }],
  ['DELETE', '/v1/files/mcp'],
]

await t.test('D1 a page of another site spends no certificate, at no route', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat', 'mcp.tools.list'])
  for (const [method, path, body] of ROUTES) {
    for (const headers of foreign(gateway.url)) {
      // The conformance suite of MCP calls as a page in plain text of this machine.
      if (path.includes('mcp') && headers.origin === otherScheme(gateway.url).origin) continue
      const answer = await gateway.call(
        bot,
        method,
        path,
        body === undefined ? { headers } : { body, headers },
      )
      const name = `${method} ${path} ${JSON.stringify(headers)}`
      t.match(answer, { status: 403, json: { reason: 'origin_not_allowed' } }, name)
      t.notOk(Object.keys(answer.headers).some((header) => header.startsWith('access-control-')))
    }
  }
  t.equal(gateway.upstream.seen.filter(({ method }) => method === 'POST').length, 0)
})

await t.test('D1 its own pages, SDKs and command lines are served as before', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  for (const headers of own(gateway.url)) {
    const { status } = await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT, headers })
    t.equal(status, 200, JSON.stringify(headers))
    t.equal((await gateway.call(bot, 'GET', '/v1/models', { headers })).status, 200)
  }
  // The fetch of Node, and of every SDK in JavaScript: no Origin, no Sec-Fetch-Site, but Sec-Fetch-Mode.
  const seen = arrivals(t, gateway)
  const dispatcher = new Agent({ connect: { ca: gateway.ca, cert: bot.cert, key: bot.key } })
  t.teardown(() => dispatcher.close())
  const { status } = await undiciFetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(CHAT),
    dispatcher,
  })
  t.equal(status, 200)
  t.match(seen.at(-1)?.headers, { 'sec-fetch-mode': 'cors' })
  t.match(seen.at(-1)?.headers, { origin: undefined, 'sec-fetch-site': undefined })
})

await t.test('D1 who is refused so is counted, and makes no row of its own', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const headers = { origin: 'https://evil.example' }
  for (const who of [bot, null]) {
    await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT, headers })
  }
  const before = await gateway.rows({ action: 'egress_llm_chat' })
  t.same(before, [])
  await gateway.close(0)
  const counted = (await gateway.rows()).filter(({ detail }) => detail.reason === 'origin_not_allowed')
  t.match(counted, [{ principal_id: null, detail: { count: 2 } }])
})

const PAGE = 'https://app.example.com'
const LIST = { jsonrpc: '2.0', id: 1, method: 'tools/list' }
const listing = (...origins: readonly string[]) => ({
  files: { '60-mcp.yaml': `plugin: mcp\nallowed_origins: ${JSON.stringify(origins)}\n` },
})
const DOORS = ['/v1/mcp', '/v1/mcp/files', '/v1/files/mcp']
const METADATA = ['/.well-known/oauth-authorization-server', '/.well-known/oauth-protected-resource/v1/mcp']

/** Asks what a browser asks before a page may call: without a certificate. */
const question = (page: string, method = 'POST', names = 'content-type,mcp-protocol-version') => ({
  origin: page,
  'sec-fetch-site': 'cross-site',
  'sec-fetch-mode': 'cors',
  'access-control-request-method': method,
  'access-control-request-headers': names,
})

const corsOf = ({ headers }: Pick<Answered, 'headers'>) =>
  Object.keys(headers).filter((name) => name.startsWith('access-control-'))

/** Pages that are none of those in the list, however close they come. */
const STRANGERS = [
  'null',
  '',
  '*',
  'http://app.example.com',
  'https://app.example.com:8443',
  'https://app.example.com:443',
  'https://APP.example.com',
  'https://app.example.com.evil.example',
  'https://evil-app.example.com',
  'https://sub.app.example.com',
  'https://app.example.com/',
  'https://app.example.com@evil.example',
  'https://app.example.com, https://evil.example',
]

await t.test('D1 a page that the operator allows for MCP reaches MCP, and nothing else', async (t) => {
  const stage = await mcpStage(t, listing('https://APP.example.com:443'))
  const bot = await stage.enroll('bot', ['llm.chat', 'mcp.tools.list'])
  const headers = { origin: PAGE, 'sec-fetch-site': 'cross-site' }
  const readable = {
    'access-control-allow-origin': PAGE,
    'access-control-allow-credentials': 'true',
    'access-control-expose-headers':
      /\bdpop-nonce\b.*\bmcp-session-id\b.*\bretry-after\b.*\bwww-authenticate\b/,
    vary: 'Origin',
  }
  t.match(await stage.call(bot, 'POST', '/v1/mcp', { body: LIST, headers }), {
    status: 200,
    headers: readable,
  })
  for (const [door, who, method, body, status] of [
    ['/v1/mcp', null, 'POST', LIST, 401],
    ['/v1/mcp', bot, 'POST', '{', 400],
    ['/v1/mcp', bot, 'GET', undefined, 405],
    ['/v1/mcp', bot, 'HEAD', undefined, 405],
    ['/v1/mcp/files', bot, 'DELETE', undefined, 405],
    ['/v1/files/mcp', null, 'DELETE', undefined, 401],
    ...METADATA.map((path) => [path, null, 'GET', undefined, 200] as const),
  ] as const) {
    const answer = await stage.call(who, method, door, { headers, ...(body !== undefined && { body }) })
    t.match(answer, { status, headers: readable }, `${method} ${door}: a refusal is readable too`)
  }
  for (const [method, path, body] of ROUTES.filter(([, path]) => !DOORS.includes(path))) {
    const answer = await stage.call(bot, method, path, { headers, ...(body !== undefined && { body }) })
    t.match(answer, { status: 403, json: { reason: 'origin_not_allowed' } }, path)
    t.same(corsOf(answer), [])
    t.same(corsOf(await stage.call(null, 'OPTIONS', path, { headers: question(PAGE) })), [], path)
  }
  t.same(
    corsOf(await stage.call(bot, 'POST', '/v1/mcp', { body: LIST })),
    [],
    'who is no page is told nothing',
  )
})

await t.test(
  'D1 what a browser asks before is answered without a certificate, to listed pages',
  async (t) => {
    const stage = await mcpStage(t, listing(PAGE))
    const asked = (door: string, headers: Record<string, string>) =>
      stage.call(null, 'OPTIONS', door, { headers })
    for (const door of [...DOORS, ...METADATA]) {
      const answer = await asked(door, question(PAGE))
      t.match(answer, {
        status: 204,
        text: '',
        headers: {
          'access-control-allow-origin': PAGE,
          'access-control-allow-credentials': 'true',
          'access-control-allow-methods': DOORS.includes(door) ? 'POST, DELETE' : 'GET, HEAD',
          'access-control-max-age': '600',
          'access-control-allow-private-network': undefined,
          vary: /^Origin, /,
        },
      })
      const names = String(answer.headers['access-control-allow-headers']).split(', ')
      for (const name of [
        ...['accept', 'authorization', 'content-type', 'dpop', 'last-event-id', 'mcp-method', 'mcp-name'],
        ...['mcp-protocol-version', 'mcp-session-id'],
      ])
        t.ok(names.includes(name), name)
      for (const name of ['*', 'cookie', 'x-admin-secret']) t.notOk(names.includes(name), name)
    }
    const [own, near] = ['Mcp-Param-Region', 'x-admin-secret, mcp-param-\tx, mcp-param-, x-mcp-param-y']
    const echoed = await asked('/v1/mcp', question(PAGE, 'POST', `content-type, ${own}, ${near}`))
    t.match(echoed.headers['access-control-allow-headers'], /, x-request-id, mcp-param-region$/)
    const many = Array.from({ length: 1000 }, (_, n) => `mcp-param-${n}`).join(',')
    const bounded = await asked('/v1/mcp', question(PAGE, 'POST', many))
    t.ok((bounded.headers['access-control-allow-headers'] ?? '').length < 2000)
    const near2 = await asked('/v1/mcp', {
      ...question(PAGE),
      'access-control-request-private-network': 'true',
    })
    t.equal(near2.headers['access-control-allow-private-network'], 'true')
  },
)

await t.test('D1 a page that only looks like a listed one is refused, and told nothing', async (t) => {
  const stage = await mcpStage(t, listing(PAGE, 'http://127.0.0.1:6274'))
  const bot = await stage.enroll('bot', ['mcp.tools.list'])
  for (const page of [...STRANGERS, 'http://localhost:6274', 'http://127.0.0.1:62740']) {
    for (const door of DOORS) {
      const preflight = await stage.call(null, 'OPTIONS', door, { headers: question(page) })
      t.match(preflight, { status: 403, json: { reason: 'origin_not_allowed' } }, `${page} asks at ${door}`)
      t.same(corsOf(preflight), [])
      // What a browser sends without asking.
      const simple = { origin: page, 'content-type': 'text/plain', 'sec-fetch-site': 'cross-site' }
      for (const [method, body] of [
        ['POST', JSON.stringify(LIST)],
        ['GET', undefined],
      ] as const) {
        const answer = await stage.call(bot, method, door, {
          headers: simple,
          ...(body !== undefined && { body }),
        })
        t.match(answer, { status: 403, json: { reason: 'origin_not_allowed' } }, `${page} at ${door}`)
        t.same(corsOf(answer), [])
      }
    }
    for (const path of METADATA) {
      t.same(corsOf(await stage.call(null, 'GET', path, { headers: { origin: page } })), [])
      t.match(await stage.call(null, 'OPTIONS', path, { headers: question(page) }), { status: 405 })
    }
  }
  const plain = await stage.call(null, 'OPTIONS', '/v1/mcp')
  t.match(
    plain,
    { status: 405, headers: { allow: 'POST, DELETE' } },
    'who is no page asks in vain, as before',
  )
})

t.test('D1 what can be no page is refused in the file, and not listed in vain', (t) => {
  for (const origin of [
    ...['*', 'https://*', 'https://*.example.com', 'null', '', 'app.example.com', 'HTTPS://app.example.com'],
    ...[
      'https://app.example.com/',
      'https://app.example.com/app',
      'https://app.example.com?x',
      'https://a#b',
    ],
    ...[
      'https://user@app.example.com',
      'https://',
      'https://a:99999',
      'https://a b',
      'file:///page',
      'chrome-extension://a',
    ],
  ])
    t.notOk(mcpOptions.safeParse({ allowed_origins: [origin] }).success, origin)
  for (const origin of [PAGE, 'http://localhost:6274', 'https://[::1]:8443', 'https://MÜNCHEN.example:443'])
    t.ok(mcpOptions.safeParse({ allowed_origins: [origin] }).success, origin)
  t.end()
})

await t.test('D1 without a list no page is answered, and OPTIONS is no method', async (t) => {
  const gateway = await testGateway(t)
  for (const path of [...DOORS, ...METADATA]) {
    const answer = await gateway.call(null, 'OPTIONS', path, { headers: question(PAGE) })
    t.match(answer, { status: 405, headers: { allow: /^(POST, DELETE|GET, HEAD)$/ } })
    t.same(corsOf(answer), [])
  }
})

async function sidecarOf(t: Test, gateway: TestGateway): Promise<{ url: string; port: number }> {
  const session = clientSession(readIdentity(await identityDirectory(t, gateway)))
  const sidecar = await startSidecar(session, '127.0.0.1', 0)
  t.teardown(async () => {
    await sidecar.close(0)
    await session.close()
  })
  return { url: sidecar.url, port: Number(new URL(sidecar.url).port) }
}

/** Sends exactly these bytes and resolves with the status codes that come back. */
async function answered(port: number, bytes: string): Promise<readonly number[]> {
  const socket = connect(port, '127.0.0.1')
  // Not ended: a client that hangs up is not answered.
  socket.write(bytes)
  return statuses(await text(socket))
}

await t.test('E5 the sidecar takes no request with two Host headers, whatever they say', async (t) => {
  const gateway = await testGateway(t)
  const { port, url } = await sidecarOf(t, gateway)
  const seen = arrivals(t, gateway)
  const own = `127.0.0.1:${port}`
  for (const [first, second] of [
    [own, 'evil.example'],
    ['evil.example', own],
    [own, own],
    [own, ''],
  ]) {
    for (const name of ['Host', 'hOST']) {
      const head = `GET /v1/models HTTP/1.1\r\nHost: ${first}\r\n${name}: ${second}\r\nConnection: close\r\n\r\n`
      t.same(await answered(port, head), [400], `${first} and ${second}`)
    }
  }
  t.equal(seen.length, 0)
  t.equal((await fetch(`${url}/v1/models`)).status, 200, "Node's own fetch is served")
  const head = `GET /v1/models HTTP/1.1\r\nHost: ${own}\r\nX-Host: evil.example\r\nConnection: close\r\n\r\n`
  t.same(await answered(port, head), [200])
})

await t.test('D1 nor does a page of another site spend it through the sidecar', async (t) => {
  const gateway = await testGateway(t)
  const { port, url } = await sidecarOf(t, gateway)
  const seen = arrivals(t, gateway)
  const sent = (headers: Record<string, string>) => {
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
    return `GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n${lines.join('')}Connection: close\r\n\r\n`
  }
  for (const headers of foreign(url)) {
    t.same(await answered(port, sent(headers)), [403], JSON.stringify(headers))
  }
  t.equal(seen.length, 0)
  for (const headers of own(url)) t.same(await answered(port, sent(headers)), [200], JSON.stringify(headers))
})
