import type { IncomingHttpHeaders, RequestListener } from 'node:http'
import t, { type Test } from 'tap'
import { HolderPlaces } from '../../../../plugins/holder-places.ts'
import { VERSION } from '../../../../proxy/boot/version.ts'
import {
  HTTP_GET_TOOL,
  type HttpGetOptions,
  httpGet,
  httpGetVia,
  withFetchLimit,
} from '../../../../proxy/mcp/http-get/tool.ts'
import { loopbackSite } from '../../../support/loopback-site.ts'
import { TOOL_CALL } from '../../../support/permit.ts'
import { refused } from '../../../support/refused.ts'

const NEVER = new AbortController().signal

/** The tool over a site on loopback that has a public-looking name. */
async function tool(t: Test, answer: RequestListener, options: Partial<HttpGetOptions> = {}) {
  const { agent, url, allowedHosts } = await loopbackSite(t, answer, 10_000)
  const fetch = httpGetVia(() => agent, {
    allowed_hosts: allowedHosts,
    timeout_ms: 10_000,
    max_bytes: 1000,
    ...options,
  })
  return {
    url,
    get: (path: string, more: object = {}, signal = NEVER) =>
      fetch(TOOL_CALL, { url: url + path, ...more }, signal),
  }
}

const textOf = (result: object): string => {
  // Proven by the shape of every result here.
  const { content } = result as { content: readonly [{ text: string }] }
  return content[0].text
}

await t.test('§2.3 http.get returns status, content type and text', async (t) => {
  const { get } = await tool(t, (_req, res) => {
    res.setHeader('content-type', 'text/html; charset=utf-8').writeHead(404).end('<p>grüezi')
  })
  t.same(await get('/a?secret=1'), {
    result: { content: [{ type: 'text', text: 'HTTP 404 text/html\n\n<p>grüezi' }], isError: false },
    report: { host: 'a.site.example', redirects: 0, status: 404, bytes: 10, cut: false },
  })
})

await t.test(
  'docs/protocol.md#http-get: the smaller of max_bytes and the operator’s limit cuts the body, which says so',
  async (t) => {
    const { get } = await tool(
      t,
      (_req, res) => void res.setHeader('content-type', 'text/plain').end('x'.repeat(2000)),
    )
    const cutAt = (bytes: number) =>
      `HTTP 200 text/plain\n\n${'x'.repeat(bytes)}\n\n[The body was cut after ${bytes} bytes.]`
    for (const [max_bytes, bytes] of [
      [10, 10],
      [1000, 1000],
      [5000, 1000],
      [undefined, 1000],
    ] as const) {
      const { result, report } = await get('/', max_bytes === undefined ? {} : { max_bytes })
      t.equal(textOf(result), cutAt(bytes))
      t.hasStrict(report, { bytes, cut: true })
    }
  },
)

await t.test(
  'docs/protocol.md#http-get: no credentials: a caller’s headers are those of a list',
  async (t) => {
    const seen: IncomingHttpHeaders[] = []
    const { get, url } = await tool(t, (req, res) => {
      seen.push(req.headers)
      res.setHeader('content-type', 'text/plain').end('ok')
    })
    const headers = {
      Accept: 'text/plain',
      'accept-language': 'de',
      'If-None-Match': '"a"',
      range: 'bytes=0-1',
    }
    t.hasStrict((await get('/', { headers })).result, { isError: false })
    t.same(seen, [
      {
        host: new URL(url).host,
        connection: 'close',
        accept: 'text/plain',
        'accept-encoding': 'identity',
        'accept-language': 'de',
        'if-none-match': '"a"',
        range: 'bytes=0-1',
        'user-agent': `sallyport-http-get/${VERSION}`,
      },
    ])
    const refused = [
      'authorization',
      'Cookie',
      'host',
      'DPoP',
      'user-agent',
      'accept-encoding',
      'connection',
      'x-forwarded-for',
      'metadata-flavor',
      'x-aws-ec2-metadata-token',
      'a\r\nb',
    ]
    for (const name of refused) {
      const { result, report } = await get('/', { headers: { [name]: 'x' } })
      t.same(result, {
        content: [{ type: 'text', text: `The header ${JSON.stringify(name)} may not be sent.` }],
        isError: true,
      })
      t.hasStrict(report, { host: 'a.site.example', reason: 'header_refused' })
    }
    for (const value of ['a\r\nx: y', 'a\0', 'ä', 'a'.repeat(1025)]) {
      t.match(
        (await get('/', { headers: { accept: value } })).report,
        { reason: 'header_refused' },
        JSON.stringify(value),
      )
    }
    t.equal(seen.length, 1, 'nothing was sent')
  },
)

await t.test('§2.3 arguments of another shape are a tool error', async (t) => {
  const fetch = httpGet({ allowed_hosts: [], timeout_ms: 1000, max_bytes: 10 })
  const url = 'https://example.com/'
  const shapes = [
    {},
    { url: 1 },
    { url, method: 'POST' },
    { url, max_bytes: 0 },
    { url, max_bytes: 1.5 },
    { url, headers: [] },
    { url, headers: { accept: 1 } },
  ]
  for (const args of shapes) {
    const { result, report } = await fetch(TOOL_CALL, args, NEVER)
    t.equal(result.isError, true)
    t.hasStrict(report, { reason: 'arguments' }, JSON.stringify(args))
  }
})

await t.test(
  'threat 19: the ledger hears the host and the reason, and never a path or a query',
  async (t) => {
    const fetch = httpGet({ allowed_hosts: ['docs.example'], timeout_ms: 1000, max_bytes: 10 })
    const cases = [
      [
        'http://169.254.169.254/latest?token=s3cret',
        { host: '169.254.169.254', reason: 'host_refused', range: 'metadata' },
      ],
      ['https://evil.example/s3cret', { host: 'evil.example', reason: 'host_not_allowed' }],
      ['https://docs.example:22/s3cret', { host: 'docs.example', reason: 'port_not_allowed' }],
      ['https://user:s3cret@docs.example/', { host: 'docs.example', reason: 'url_refused' }],
      ['s3cret', { host: null, reason: 'url_refused' }],
    ] as const
    for (const [url, report] of cases) t.same((await fetch(TOOL_CALL, { url }, NEVER)).report, report)
  },
)

await t.test('§2.3 the last host of a redirect is in the ledger too', async (t) => {
  const { get, url } = await tool(t, (req, res) => {
    if (req.url === '/') return void res.setHeader('content-type', 'text/plain').end('there')
    res.writeHead(302, { location: `//b.site.example:${req.socket.localPort}/` }).end()
  })
  t.match(new URL(url).hostname, 'a.site.example')
  t.same((await get('/go')).report, {
    host: 'a.site.example',
    redirects: 1,
    final_host: 'b.site.example',
    status: 200,
    bytes: 5,
    cut: false,
  })
})

await t.test(
  'docs/protocol.md#http-get: one limit of time for all, and the caller’s own hanging up',
  async (t) => {
    const caller = new AbortController()
    const silent: RequestListener = (req) => {
      if (req.url === '/caller') caller.abort()
    }
    const { get } = await tool(t, silent, { timeout_ms: 50 })
    t.hasStrict((await get('/')).report, { reason: 'timeout' })
    const patient = await tool(t, silent)
    t.hasStrict((await patient.get('/caller', {}, caller.signal)).report, { reason: 'aborted' })
  },
)

await t.test('§2.3 the tool says what it is', (t) => {
  t.match(HTTP_GET_TOOL, {
    name: 'http.get',
    inputSchema: { required: ['url'], additionalProperties: false },
    annotations: { readOnlyHint: true, openWorldHint: true },
  })
  t.throws(() => httpGet({ allowed_hosts: ['https://x'], timeout_ms: 1, max_bytes: 1 }), /allowed_hosts/)
  t.end()
})

await t.test(
  'H2: fetches of one agent leave places for those of another, and what ends makes room, whichever way',
  async (t) => {
    const open: PromiseWithResolvers<void>[] = []
    const fetch = withFetchLimit(new HolderPlaces({ own: 2, all: 3 }), async () => {
      const one = Promise.withResolvers<void>()
      open.push(one)
      await one.promise
      return { result: {}, report: {} }
    })
    const by = (id: string) => fetch({ ...TOOL_CALL, principal: { ...TOOL_CALL.principal, id } }, {}, NEVER)
    const [a, b] = [by('a'), by('a')]
    await t.rejects(
      by('a'),
      refused('overloaded', { message: '2 of your fetches are under way. Try again when one is done.' }),
    )
    const other = by('b')
    await t.rejects(
      by('c'),
      refused('overloaded', { message: '3 fetches are under way. Try again when one is done.' }),
    )
    open[0]?.resolve()
    await a
    open[1]?.reject(new Error('b failed'))
    await t.rejects(b, { message: 'b failed' })
    const again = [by('a'), by('a')]
    await t.rejects(by('c'), refused('overloaded'))
    for (const { resolve } of open.slice(2)) resolve()
    await Promise.all([other, ...again])
  },
)
