import t from 'tap'
import { mediaWeight } from '../../../plugins/json-body/media-weight.ts'
import { ADMIN_SECRET, type Identity, sharedGateway, testGateway } from '../../support/gateway.ts'

const SECRET = { 'x-admin-secret': ADMIN_SECRET }
/** Headers of one answer alone, and those of a moment. */
const OWN = [
  'x-request-id',
  'request-id',
  'date',
  'audit-receipt',
  'dpop-nonce',
  'content-length',
  'etag',
  'transfer-encoding',
]

const without = (headers: object): object =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !OWN.includes(name)))

await t.test(
  'RFC 9110 §9.1: HEAD is wherever GET is safe, with its headers, its gates and no body',
  async (t) => {
    const gateway = await sharedGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const doors: readonly (readonly [
      path: string,
      status: number,
      who?: Identity | null,
      headers?: Record<string, string>,
    ])[] = [
      ['/health', 200],
      ['/ready', 200],
      ['/pki/ca.crt', 200],
      ['/openapi.json', 200],
      ['/.well-known/oauth-authorization-server', 200],
      ['/metrics', 403],
      ['/metrics', 200, null, SECRET],
      ['/proxy', 303],
      ['/proxy/sign-in', 200],
      ['/v1/models', 401],
      ['/v1/models', 200, bot],
      ['/v1/admin/agents', 403],
      ['/v1/admin/agents', 200, null, SECRET],
      ['/v1/admin/audit/export', 200, null, SECRET],
      ['/v1/mcp', 405, bot],
      ['/nowhere', 404],
    ]
    for (const [path, status, who = null, headers = {}] of doors) {
      const [got, head] = [
        await gateway.call(who, 'GET', path, { headers }),
        await gateway.call(who, 'HEAD', path, { headers }),
      ]
      t.equal(head.status, status, path)
      t.equal(head.status, got.status, path)
      t.equal(head.text, '', `${path}: no body`)
      t.same(without(head.headers), without(got.headers), `${path}: the same headers`)
      if (!path.includes('metrics') && !path.includes('export'))
        t.equal(head.headers['content-length'], got.headers['content-length'], `${path}: of the same length`)
    }
    const { status, headers } = await gateway.call(bot, 'HEAD', '/v1/chat/completions')
    t.match({ status, allow: headers.allow }, { status: 405, allow: 'POST' })
    for (const path of ['/proxy/oidc/start', '/proxy/oidc/callback?code=a&state=b'])
      t.match(
        await gateway.call(null, 'HEAD', path),
        { status: 405, headers: { allow: 'GET' } },
        `${path}: who looks for a page uses up no sign-in`,
      )
    t.match(await gateway.call(bot, 'PUT', '/health'), { status: 405, headers: { allow: 'GET, HEAD' } })
    const line = gateway.log.find(({ method, path }) => method === 'HEAD' && path === '/health')
    t.match(line, { status: 200, bytes: 0, ending: 'complete' }, 'and is logged as what it is')
  },
)

await t.test('RFC 9110 §13.1.2: If-None-Match is a list, weak or not, or an asterisk', async (t) => {
  const gateway = await sharedGateway(t)
  const { headers } = await gateway.call(null, 'GET', '/pki/ca.crt')
  const etag = String(headers.etag)
  const asked = async (value: string): Promise<number> =>
    (await gateway.call(null, 'GET', '/pki/ca.crt', { headers: { 'if-none-match': value } })).status
  for (const same of [etag, `W/${etag}`, `"a", ${etag}`, '*']) t.equal(await asked(same), 304, same)
  for (const other of ['"a"', etag.slice(1), '']) t.equal(await asked(other), 200, other)
})

await t.test('RFC 9110 §15.5.16: a compressed body is 415 at every door, and identity is none', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const doors: readonly (readonly [
    path: string,
    who: typeof bot | null,
    headers?: Record<string, string>,
  ])[] = [
    ['/v1/chat/completions', bot],
    ['/v1/messages', bot],
    ['/v1/mcp', bot],
    ['/v1/auth/token', bot],
    ['/v1/admin/agents', null, SECRET],
  ]
  for (const [path, who, headers = {}] of doors) {
    for (const coding of ['gzip', 'br', 'zstd', 'deflate', 'gzip, identity']) {
      const asked = { headers: { ...headers, 'content-encoding': coding }, body: Buffer.from('\x1f\x8b') }
      const answered = await gateway.call(who, 'POST', path, asked)
      t.equal(answered.status, 415, `${path}: ${coding}`)
      t.equal(answered.headers['accept-encoding'], 'identity', `${path}: ${coding}`)
    }
    const plain = await gateway.call(who, 'POST', path, {
      headers: { ...headers, 'content-encoding': 'Identity' },
      body: '{}',
    })
    t.not(plain.status, 415, path)
  }
})

await t.test(
  'RFC 8259 §8.1: a byte order mark before a body is refused at every door, and named',
  async (t) => {
    const gateway = await sharedGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    for (const [path, who, headers] of [
      ['/v1/chat/completions', bot, {}],
      ['/v1/messages', bot, {}],
      ['/v1/mcp', bot, {}],
      ['/v1/admin/agents', null, SECRET],
    ] as const) {
      const body = Buffer.from('\uFEFF{"model": "m", "messages": []}')
      const answered = await gateway.call(who, 'POST', path, {
        headers: { ...headers, 'content-type': 'application/json' },
        body,
      })
      t.equal(answered.status, 400, path)
      t.match(answered.text, /byte order mark/, path)
    }
    t.equal(gateway.upstream.seen.length, 0)
  },
)

await t.test('RFC 9110 §12.5.1: a media type of weight 0 is none, and the closest range decides', (t) => {
  const ndjson = 'application/x-ndjson'
  for (const [accept, weight] of [
    [ndjson, 1],
    ['*/*', 1],
    ['APPLICATION/X-NDJSON ; Q=0.5', 0.5],
    ['application/x-ndjson;q=0, */*', 0],
    ['*/*, application/x-ndjson; q=0.000', 0],
    ['application/*;q=0.2, */*;q=0.9', 0.2],
    ['text/html', 0],
    ['application/x-ndjson;q=much', 0],
    ['', 0],
  ] as const)
    t.equal(mediaWeight(accept, ndjson), weight, accept)
  t.end()
})

await t.test('RFC 9110 §11.1: a scheme is in any case, with blanks before what follows', async (t) => {
  const gateway = await sharedGateway(t)
  const token = 'a-token-of-24-characters'
  const metered = await testGateway(t, { settings: { MCP_PROXY_METRICS_TOKEN: token } })
  for (const scheme of ['Bearer ', 'bearer ', 'BEARER    '])
    t.equal(
      (await metered.call(null, 'GET', '/metrics', { headers: { authorization: scheme + token } })).status,
      200,
      scheme,
    )
  const bot = await gateway.enroll('bot', ['llm.chat'])
  for (const path of ['/v1/%6dodels', '/v1/models%2F', '/%76%31/models'])
    t.match(await gateway.call(bot, 'GET', path), { status: 404, json: { reason: 'not_found' } }, path)
})
