import t from 'tap'
import { testGateway } from '../support/gateway.ts'
import { chatBytes, rawAnswer, statuses } from '../support/raw.ts'

/** A whole call that stands behind each attack. Nobody may ever answer or dispatch it. */
const HIDDEN = chatBytes('gpt-hidden')
const LENGTH = `content-length: ${HIDDEN.length}`
const HOST = 'host: localhost'
const GOOD = '{"model":"gpt-front","messages":[]}'
const PATH = '/v1/chat/completions'

/** A request line, header lines, and whatever follows the empty line. */
const raw = (line: string, headers: readonly string[], rest = HIDDEN): string =>
  `${[line, ...headers].join('\r\n')}\r\n\r\n${rest}`

/** POST to a gated path with these header lines beside Host. */
const post = (headers: readonly string[], rest = HIDDEN): string =>
  raw(`POST ${PATH} HTTP/1.1`, [HOST, ...headers], rest)

const chunked = (rest: string, ...headers: string[]): string =>
  post(['transfer-encoding: chunked', ...headers], rest)

const chunk = (text: string, extension = ''): string =>
  `${text.length.toString(16)}${extension}\r\n${text}\r\n`

/**
 * `closed`: hung up on, at most with a word of refusal; so where the parser gives up with a request half
 * read.
 */
type Expected = number | 'closed'
type Attack = readonly [name: string, bytes: string, expected: Expected]

const HOSTS: readonly Attack[] = [
  ['no Host', raw(`POST ${PATH} HTTP/1.1`, []), 400],
  ['two Hosts', raw(`POST ${PATH} HTTP/1.1`, [HOST, 'host: evil.example']), 400],
  ['two equal Hosts', raw(`POST ${PATH} HTTP/1.1`, [HOST, HOST]), 400],
  ['an empty Host', raw(`POST ${PATH} HTTP/1.1`, ['host:']), 400],
  ['a Host with a path and userinfo', raw(`POST ${PATH} HTTP/1.1`, ['host: a/b@c']), 400],
  ['a Host with userinfo', raw(`POST ${PATH} HTTP/1.1`, ['host: localhost@evil.example']), 400],
  ['a Host with a blank', raw(`POST ${PATH} HTTP/1.1`, ['host: local host']), 400],
  ['a Host list', raw(`POST ${PATH} HTTP/1.1`, ['host: localhost, evil.example']), 400],
  ['a Host with a port of letters', raw(`POST ${PATH} HTTP/1.1`, ['host: localhost:http']), 400],
  ['a Host with a scheme', raw(`POST ${PATH} HTTP/1.1`, ['host: https://localhost']), 400],
]

const REQUEST_LINES: readonly Attack[] = [
  ['an absolute-form target', raw(`POST http://evil.example${PATH} HTTP/1.1`, [HOST]), 400],
  ['an absolute-form target of ourselves', raw(`POST https://localhost${PATH} HTTP/1.1`, [HOST]), 400],
  ['a network-path target', raw(`POST //evil.example${PATH} HTTP/1.1`, [HOST]), 400],
  ['an authority-form target', raw('POST localhost:443 HTTP/1.1', [HOST]), 400],
  ['OPTIONS *', raw('OPTIONS * HTTP/1.1', [HOST]), 400],
  ['CONNECT', raw('CONNECT localhost:443 HTTP/1.1', [HOST]), 'closed'],
  ['TRACE', raw(`TRACE ${PATH} HTTP/1.1`, [HOST]), 400],
  ['HTTP/0.9 without a version', raw(`POST ${PATH}`, [HOST]), 'closed'],
  ['HTTP/0.9 with a version', raw(`POST ${PATH} HTTP/0.9`, [HOST]), 'closed'],
  ['HTTP/1.0', raw(`POST ${PATH} HTTP/1.0`, [HOST]), 'closed'],
  ['HTTP/1.0 kept alive', raw(`POST ${PATH} HTTP/1.0`, [HOST, 'connection: keep-alive']), 400],
  [
    'HTTP/1.0 with chunks',
    raw(`POST ${PATH} HTTP/1.0`, [HOST, 'transfer-encoding: chunked'], `0\r\n\r\n${HIDDEN}`),
    'closed',
  ],
  ['HTTP/1.2', raw(`POST ${PATH} HTTP/1.2`, [HOST]), 400],
  ['HTTP/2.0', raw(`POST ${PATH} HTTP/2.0`, [HOST]), 'closed'],
  ['the HTTP/2 preface', `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${HIDDEN}`, 400],
  ['http in lower case', raw(`POST ${PATH} http/1.1`, [HOST]), 400],
  ['a method in lower case', raw(`post ${PATH} HTTP/1.1`, [HOST]), 400],
  ['a method that nobody knows', raw(`SMUGGLE ${PATH} HTTP/1.1`, [HOST]), 400],
  ['a tab in the request line', raw(`POST\t${PATH} HTTP/1.1`, [HOST]), 400],
  ['a bare CR in the request line', raw(`POST ${PATH}\rx HTTP/1.1`, [HOST]), 400],
  ['a NUL in the target', raw(`POST ${PATH}\0 HTTP/1.1`, [HOST]), 400],
  ['a byte above ASCII in the target', raw(`POST ${PATH}\xa0 HTTP/1.1`, [HOST]), 400],
  ['a backslash in the target', raw('POST /v1\\chat\\completions HTTP/1.1', [HOST]), 400],
  ['a fragment in the target', raw(`POST ${PATH}#a HTTP/1.1`, [HOST]), 400],
  ['a blank before the first header', raw(`POST ${PATH} HTTP/1.1`, [` ${HOST}`]), 400],
]

const LENGTHS: readonly Attack[] = [
  ['two different lengths', post(['content-length: 0', LENGTH]), 400],
  ['two equal lengths', post([LENGTH, LENGTH]), 400],
  ['a list of lengths', post([`content-length: 0, ${HIDDEN.length}`]), 400],
  ['a length with a plus', post(['content-length: +3']), 400],
  ['a negative length', post(['content-length: -1']), 400],
  ['a hexadecimal length', post(['content-length: 0x3']), 400],
  ['a length with a blank in it', post(['content-length: 1 0']), 400],
  ['an empty length', post(['content-length:']), 400],
  ['a length beyond 64 bits', post(['content-length: 99999999999999999999']), 400],
  ['a blank before the colon of the length', post(['content-length : 0']), 400],
]

const CODINGS: readonly Attack[] = [
  ['chunks and a length', post(['transfer-encoding: chunked', LENGTH], `0\r\n\r\n${HIDDEN}`), 400],
  ['a length and chunks', post([LENGTH, 'transfer-encoding: chunked'], `0\r\n\r\n${HIDDEN}`), 400],
  ['gzip, chunked', post(['transfer-encoding: gzip, chunked'], `0\r\n\r\n${HIDDEN}`), 400],
  ['chunked, gzip', post(['transfer-encoding: chunked, gzip'], `0\r\n\r\n${HIDDEN}`), 400],
  ['identity', post(['transfer-encoding: identity']), 'closed'],
  ['identity and a length', post(['transfer-encoding: identity', LENGTH]), 400],
  ['a coding that nobody knows', post(['transfer-encoding: xchunked']), 'closed'],
  ['chunked twice', post(['transfer-encoding: chunked, chunked'], `0\r\n\r\n${HIDDEN}`), 400],
  [
    'two Transfer-Encodings',
    post(['transfer-encoding: chunked', 'transfer-encoding: chunked'], `0\r\n\r\n${HIDDEN}`),
    400,
  ],
  [
    'chunked and identity',
    post(['transfer-encoding: chunked', 'transfer-encoding: identity'], `0\r\n\r\n${HIDDEN}`),
    400,
  ],
  ['a vertical tab before chunked', post(['transfer-encoding: \x0bchunked'], `0\r\n\r\n${HIDDEN}`), 400],
  ['a quoted chunked', post(['transfer-encoding: "chunked"'], `0\r\n\r\n${HIDDEN}`), 'closed'],
  ['Transfer_Encoding', post(['transfer_encoding: chunked', 'content-length: 0']), 400],
  ['Content_Length', post(['content_length: 5', 'content-length: 0']), 400],
  ['a blank before the colon', post(['transfer-encoding : chunked'], `0\r\n\r\n${HIDDEN}`), 400],
  ['a coding on the folded line', post(['transfer-encoding:', ' chunked'], `0\r\n\r\n${HIDDEN}`), 400],
]

const CHUNKS: readonly Attack[] = [
  ['a size that is no number', chunked(`x\r\n${HIDDEN}`), 'closed'],
  ['a size with 0x', chunked(`0x0\r\n\r\n${HIDDEN}`), 'closed'],
  ['a negative size', chunked(`-1\r\n${HIDDEN}`), 'closed'],
  ['a size with a plus', chunked(`+0\r\n\r\n${HIDDEN}`), 'closed'],
  ['a size with a blank before it', chunked(` 0\r\n\r\n${HIDDEN}`), 'closed'],
  ['a size beyond 64 bits', chunked(`10000000000000000\r\n${HIDDEN}`), 'closed'],
  ['a size ended by LF alone', chunked(`0\n\n${HIDDEN}`), 'closed'],
  ['chunk data longer than its size', chunked(`1\r\n${HIDDEN}`), 'closed'],
  ['chunk data ended by LF alone', chunked(`1\r\nx\n0\r\n\r\n${HIDDEN}`), 'closed'],
  [
    'an extension of 20 KB',
    chunked(`${chunk('{}', `;a=${'x'.repeat(20_000)}`)}0\r\n\r\n${HIDDEN}`),
    'closed',
  ],
  ['an extension with a bare LF', chunked(`2;a\nb\r\n{}\r\n0\r\n\r\n${HIDDEN}`), 'closed'],
  ['an extension with a bare CR', chunked(`2;a\rb\r\n{}\r\n0\r\n\r\n${HIDDEN}`), 'closed'],
  ['a trailer that is no header', chunked(`0\r\nno colon\r\n\r\n${HIDDEN}`), 'closed'],
]

const HEADERS: readonly Attack[] = [
  ['a folded header', post(['x-a: 1', ' 2', 'content-length: 0']), 400],
  ['a bare LF between headers', `POST ${PATH} HTTP/1.1\n${HOST}\n\n${HIDDEN}`, 400],
  ['a bare CR in a value', post(['x-a: 1\r2', 'content-length: 0']), 400],
  ['a bare LF in a value', post(['x-a: 1\n2', 'content-length: 0']), 400],
  ['a NUL in a value', post(['x-a: 1\x002', 'content-length: 0']), 400],
  ['a NUL in a name', post(['x\0a: 1', 'content-length: 0']), 400],
  ['a name with a blank', post(['x a: 1', 'content-length: 0']), 400],
  ['an empty name', post([': 1', 'content-length: 0']), 400],
  ['a line without colon', post(['x-a', 'content-length: 0']), 400],
  // An underscore stands for a hyphen at some servers: what spells a header of ours is refused.
  ...['x_admin_secret', 'X-Admin_Secret', 'mcp_session_id', 'x_api_key', 'sec_fetch_site', 'if_match'].map(
    (name): Attack => [`the name ${name}`, post([`${name}: a`, 'content-length: 0']), 400],
  ),
  ['headers of more than 16 KB', post([`x-a: ${'x'.repeat(17_000)}`, 'content-length: 0']), 431],
  [
    'more than 1,000 header lines',
    post([...Array.from({ length: 1_100 }, () => 'a: b'), 'content-length: 0']),
    'closed',
  ],
  // docs/threats.md#t8: Node keeps the first, joins the two, or differs from the next hop.
  ...[
    'authorization: Bearer a',
    'dpop: a',
    'x-admin-secret: a',
    'x-api-key: a',
    'content-type: text/plain',
    'expect: 100-continue',
    'origin: https://a.example',
    'if-match: "1"',
    'mcp-session-id: a',
  ].map((line): Attack => [`two of ${line} (T8)`, post([line, line, 'content-length: 0']), 400]),
  ['an expectation that nobody knows', post(['expect: 200-ok', 'content-length: 0']), 417],
]

const ATTACKS = [...HOSTS, ...REQUEST_LINES, ...LENGTHS, ...CODINGS, ...CHUNKS, ...HEADERS]

// Connections that are kept are closed soon, so that "everything until close" comes soon.
const timers = { headersMs: 2_000, requestMs: 2_000, keepAliveMs: 100, checkMs: 100 }

t.test('T7 T8 threat 10: no ambiguous request is served, and nothing behind it is seen', async (t) => {
  t.ok(ATTACKS.length >= 60, `${ATTACKS.length} attacks`)
  const gateway = await testGateway(t, { timers })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const answers = await Promise.all(
    ATTACKS.map(async ([name, bytes, expected]) => {
      const received = await rawAnswer(t, gateway, bot, Buffer.from(bytes, 'latin1'))
      return { name, expected, found: statuses(received) }
    }),
  )
  for (const { name, expected, found } of answers) {
    t.same(
      found,
      expected === 'closed' ? found.filter((status) => status >= 400).slice(0, 1) : [expected],
      name,
    )
  }
  const rows = await gateway.rows()
  t.equal(gateway.upstream.seen.length, 0, 'nothing was dispatched')
  t.same(
    rows.filter(({ status }) => status === 'allowed'),
    [],
    'nothing was allowed',
  )
  t.notOk(
    rows.some(({ model }) => model === 'gpt-hidden'),
    'no hidden request was judged',
  )
})

t.test('threat 10: what stands in a body stays a body, whatever refused the request', async (t) => {
  const gateway = await testGateway(t, { timers })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const nobody = await gateway.enroll('nobody', [])
  const cases: readonly (readonly [string, typeof bot | null, string, number])[] = [
    ['GET /health with a body', bot, raw('GET /health HTTP/1.1', [HOST, LENGTH]), 200],
    [
      'GET /health with chunks',
      bot,
      raw('GET /health HTTP/1.1', [HOST, 'transfer-encoding: chunked'], `${chunk(HIDDEN)}0\r\n\r\n`),
      200,
    ],
    ['DELETE with a body (T1)', bot, raw(`DELETE ${PATH} HTTP/1.1`, [HOST, LENGTH]), 405],
    [
      'DELETE with chunks (T1)',
      bot,
      raw(`DELETE ${PATH} HTTP/1.1`, [HOST, 'transfer-encoding: chunked'], `${chunk(HIDDEN)}0\r\n\r\n`),
      405,
    ],
    [
      'OPTIONS with chunks (T1)',
      bot,
      raw(`OPTIONS ${PATH} HTTP/1.1`, [HOST, 'transfer-encoding: chunked'], `${chunk(HIDDEN)}0\r\n\r\n`),
      405,
    ],
    ['a path that is not there', bot, raw('POST /nothing HTTP/1.1', [HOST, LENGTH]), 404],
    ['a body that is not JSON', bot, post([LENGTH]), 400],
    ['no capability', nobody, post([LENGTH]), 400],
    ['no certificate', null, post([LENGTH]), 401],
    ['the admin API without its secret', null, raw('POST /v1/admin/agents HTTP/1.1', [HOST, LENGTH]), 403],
    ['an Upgrade', bot, post(['connection: upgrade', 'upgrade: websocket', LENGTH]), 400],
    [
      'an h2c Upgrade',
      bot,
      post([
        'connection: upgrade, http2-settings',
        'upgrade: h2c',
        'http2-settings: AAMAAABkAAQAAP__',
        LENGTH,
      ]),
      400,
    ],
    ['Expect and a body at once', bot, post(['expect: 100-continue', LENGTH]), 400],
    ['Expect, refused before its body', null, post(['expect: 100-continue', LENGTH]), 401],
    [
      'a trailer with credentials',
      bot,
      chunked(`${chunk(HIDDEN)}0\r\nauthorization: Bearer a\r\nx-admin-secret: b\r\n\r\n`),
      400,
    ],
  ]
  await Promise.all(
    cases.map(async ([name, who, bytes, status]) => {
      t.same(statuses(await rawAnswer(t, gateway, who, bytes)), [status], name)
    }),
  )
  t.equal(gateway.upstream.seen.length, 0, 'nothing was dispatched')
  t.notOk((await gateway.rows()).some(({ model }) => model === 'gpt-hidden'))
})

t.test('threat 10: what is allowed is dispatched once, and its trailers go nowhere', async (t) => {
  const gateway = await testGateway(t, { timers })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const trailers = 'authorization: Bearer smuggled\r\nx-admin-secret: smuggled\r\nhost: evil.example\r\n'
  const accepted: readonly (readonly [string, string])[] = [
    ['chunks', chunked(`${chunk(GOOD)}0\r\n\r\n`)],
    ['a short chunk extension', chunked(`${chunk(GOOD, ';a=b')}0\r\n\r\n`)],
    ['trailers', chunked(`${chunk(GOOD)}0\r\n${trailers}\r\n`)],
    ['leading zeros of a size', chunked(`0000${chunk(GOOD)}0\r\n\r\n`)],
    [
      'Upgrade, which is ignored',
      post(['connection: upgrade', 'upgrade: h2c', `content-length: ${GOOD.length}`], GOOD),
    ],
    ['Expect', post(['expect: 100-continue', `content-length: ${GOOD.length}`], GOOD)],
    [
      'a Host in capitals',
      raw(`POST ${PATH} HTTP/1.1`, ['host: LOCALHOST:', `content-length: ${GOOD.length}`], GOOD),
    ],
    [
      'underscores',
      post(['session_id: smuggled', 'x_mine: smuggled', `content-length: ${GOOD.length}`], GOOD),
    ],
  ]
  await Promise.all(
    accepted.map(async ([name, bytes]) => {
      t.same(statuses(await rawAnswer(t, gateway, bot, bytes)), [200], name)
    }),
  )
  t.equal(gateway.upstream.seen.length, accepted.length)
  const allowed = (await gateway.rows()).filter(({ status }) => status === 'allowed')
  t.equal(allowed.length, accepted.length, 'as many decisions as dispatches')
  for (const { body, rawHeaders } of gateway.upstream.seen) {
    t.equal(body.toString(), GOOD)
    t.notMatch(rawHeaders.join('\n'), /smuggled|evil|trailer|chunked/i)
  }
})
