import type { RequestListener } from 'node:http'
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { OWN_AUTHORITY } from '../../../../plugins/call-authority.ts'
import { type FetchRequest, fetchVia } from '../../../../proxy/mcp/http-get/fetch.ts'
import { FetchFailure, parseAllowedHosts } from '../../../../proxy/mcp/http-get/hop.ts'
import { loopbackSite } from '../../../support/loopback-site.ts'

/** A fetch of one path of a site, that says what came of it. */
async function site(t: Test, answer: RequestListener) {
  // Without a limit between two pieces: nothing but the fetch itself may let go of an answer.
  const { agent, url, allowedHosts } = await loopbackSite(t, answer, 0)
  const allowed = parseAllowedHosts(allowedHosts)
  return async (path: string, request: Partial<FetchRequest> = {}) => {
    const { hops, outcome } = await fetchVia(agent, new URL(url + path), {
      headers: {},
      maxBytes: 100,
      allowed,
      signal: new AbortController().signal,
      authority: OWN_AUTHORITY,
      ...request,
    })
    if (!(outcome instanceof FetchFailure)) return { hops: hops.length, ...outcome }
    const { reason, message, detail } = outcome
    return { hops: hops.length, reason, message, detail }
  }
}

await t.test('docs/protocol.md#http-get: at most three redirects are followed', async (t) => {
  const get = await site(t, (req, res) => {
    const left = Number(req.url?.slice(1))
    if (left === 0) res.setHeader('content-type', 'text/plain').end('there')
    else res.writeHead(302, { location: `/${left - 1}` }).end()
  })
  t.hasStrict(await get('/0'), { hops: 1, status: 200, text: 'there' })
  t.hasStrict(await get('/3'), { hops: 4, status: 200, text: 'there' })
  t.hasStrict(await get('/4'), { hops: 4, reason: 'redirects' })
})

await t.test(
  'docs/protocol.md#http-get: every kind of redirect is a GET again, and a Location on any other answer is none',
  async (t) => {
    const asked: string[] = []
    const get = await site(t, (req, res) => {
      asked.push(`${req.method} ${req.url}`)
      res.setHeader('content-type', 'text/plain')
      const status = Number(req.url?.slice(1)) || 200
      res.writeHead(status, status === 200 ? {} : { location: '/end' }).end('body')
    })
    for (const status of [301, 302, 303, 307, 308]) {
      t.hasStrict(await get(`/${status}`), { hops: 2, status: 200, text: 'body' }, String(status))
    }
    for (const status of [201, 300, 404])
      t.hasStrict(await get(`/${status}`), { hops: 1, status, text: 'body' })
    t.hasStrict(await get('/304'), { hops: 1, status: 304, text: '', mediaType: '' })
    t.ok(asked.every((line) => line.startsWith('GET ')))
  },
)

await t.test('threat 19: a redirect to two places, or to a forbidden one, is not followed', async (t) => {
  let asked = 0
  const get = await site(t, (req, res) => {
    asked += 1
    if (req.url === '/two') res.setHeader('location', ['/a', '/b']).writeHead(302).end()
    else res.writeHead(302, { location: `http://127.0.0.1:${req.socket.localPort}/` }).end()
  })
  t.hasStrict(await get('/two'), { hops: 1, reason: 'redirects' })
  t.hasStrict(await get('/inside'), { hops: 1, reason: 'host_refused', detail: { range: 'loopback' } })
  t.equal(asked, 2)
})

await t.test('docs/protocol.md#http-get: a body is cut at the limit, and the rest is not read', async (t) => {
  const closed = Promise.withResolvers<void>()
  const get = await site(t, (req, res) => {
    res.setHeader('content-type', 'text/plain')
    if (req.url !== '/endless') return void res.end('x'.repeat(Number(req.url?.slice(1))))
    res.once('close', () => closed.resolve())
    const more = () => {
      while (res.write('y'.repeat(1000)));
    }
    res.on('drain', more)
    more()
  })
  t.hasStrict(await get('/100'), { text: 'x'.repeat(100), bytes: 100, cut: false })
  t.hasStrict(await get('/101'), { text: 'x'.repeat(100), bytes: 100, cut: true })
  t.hasStrict(await get('/0'), { text: '', bytes: 0, cut: false })
  t.hasStrict(await get('/endless'), { text: 'y'.repeat(100), cut: true })
  await closed.promise
})

await t.test('docs/protocol.md#http-get: the body of a redirect is not waited for', async (t) => {
  const closed = Promise.withResolvers<void>()
  const get = await site(t, (req, res) => {
    if (req.url === '/there') return void res.setHeader('content-type', 'text/plain').end('there')
    res.once('close', () => closed.resolve())
    res.writeHead(302, { location: '/there' }).write('endless')
  })
  t.hasStrict(await get('/'), { hops: 2, text: 'there' })
  await closed.promise
})

await t.test('docs/protocol.md#http-get: a character that the cut splits is left out', async (t) => {
  const get = await site(
    t,
    (_req, res) => void res.setHeader('content-type', 'text/plain').end('ä'.repeat(100)),
  )
  t.hasStrict(await get('/', { maxBytes: 5 }), { text: 'ää', bytes: 5, cut: true })
})

await t.test('threat 19: only text is returned, in a known character set', async (t) => {
  const get = await site(t, (req, res) => {
    const type = decodeURIComponent(req.url?.slice(1) ?? '')
    if (type !== '') res.setHeader('content-type', type)
    res.end(Buffer.from([0x63, 0x61, 0x66, 0xe9]))
  })
  const of = (type: string) => get(`/${encodeURIComponent(type)}`)
  const texts = [
    'text/plain',
    'TEXT/HTML',
    'application/json',
    'application/problem+json; a=b',
    'image/svg+xml',
  ]
  for (const type of texts) t.hasStrict(await of(type), { text: 'caf\ufffd' }, type)
  for (const charset of ['utf-8', '"UTF-8"', 'us-ascii']) {
    t.hasStrict(
      await of(`text/plain; charset=${charset}`),
      { text: 'caf\ufffd', mediaType: 'text/plain' },
      charset,
    )
  }
  t.hasStrict(await of('text/plain;charset=ISO-8859-1'), { text: 'café' })
  const message = 'HTTP 200. The answer is image/png, which is not text.'
  t.hasStrict(await of('image/png'), { reason: 'content_type', message, detail: { status: 200 } })
  for (const type of ['application/octet-stream', 'application/pdf', 'multipart/mixed', 'text', ';', '']) {
    t.hasStrict(await of(type), { reason: 'content_type' }, type)
  }
  for (const charset of ['utf-16', 'utf-7', 'shift_jis', 'x-user-defined']) {
    t.hasStrict(await of(`text/plain; charset=${charset}`), { reason: 'charset' }, charset)
  }
})

await t.test('threat 19: a compressed answer is not unpacked', async (t) => {
  const get = await site(t, (req, res) => {
    const encoding = req.url?.slice(1) ?? ''
    res.writeHead(200, { 'content-type': 'text/plain', 'content-encoding': encoding })
    res.end(encoding === 'identity' ? 'plain' : gzipSync(Buffer.alloc(1_000_000)))
  })
  for (const encoding of ['gzip', 'br', 'deflate', 'identity,gzip', 'zstd']) {
    t.hasStrict(await get(`/${encoding}`), { reason: 'content_encoding' }, encoding)
  }
  t.hasStrict(await get('/identity'), { text: 'plain' })
})

await t.test(
  'threat 19: a fetch ends when its signal says so, before the head and in the body',
  async (t) => {
    const under = new Map<string, AbortController>()
    const get = await site(t, (req, res) => {
      if (req.url === '/body') res.writeHead(200, { 'content-type': 'text/plain' }).write('some')
      setImmediate(() => under.get(req.url ?? '')?.abort())
    })
    for (const path of ['/head', '/body']) {
      const controller = new AbortController()
      under.set(path, controller)
      t.hasStrict(await get(path, { signal: controller.signal }), { reason: 'aborted' }, path)
    }
    t.hasStrict(await get('/head', { signal: AbortSignal.timeout(20) }), { reason: 'timeout' })
    t.hasStrict(await get('/head', { signal: AbortSignal.abort() }), { reason: 'aborted' }, 'it had before')
  },
)

await t.test('threat 19: an answer that breaks off is no answer', async (t) => {
  const get = await site(t, (req, res) => {
    if (req.url === '/head') return void req.socket.destroy()
    res.writeHead(200, { 'content-type': 'text/plain', 'content-length': 10 }).write('half')
    setImmediate(() => req.socket.destroy())
  })
  t.hasStrict(await get('/head'), {
    reason: 'unreachable',
    message: 'The server could not be reached or broke off.',
  })
  t.hasStrict(await get('/body'), { reason: 'unreachable' })
})
