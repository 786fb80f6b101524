import { once } from 'node:events'
import { createServer as createTcpServer, type Socket } from 'node:net'
import type { Readable } from 'node:stream'
import { createServer as createTlsServer } from 'node:tls'
import t from 'tap'
import { collectBytes } from '../../../../plugins/collect.ts'
import { CallHangup } from '../../../../proxy/http/open-calls.ts'
import {
  readWholeBody,
  type UpstreamErrorKind,
  type UpstreamRequest,
} from '../../../../proxy/llm/upstream/answer.ts'
import { openUpstream } from '../../../../proxy/llm/upstream/client.ts'
import { odd } from '../../../support/certs/made.ts'
import { answer, chunk, chunkedHead, nobody, portOf, rawUpstream } from '../../../support/llm/upstreams.ts'
import { CATALOGUE } from '../../../support/permit.ts'

const upstream = openUpstream()
t.teardown(() => upstream.close())

const ofKind = (kind: UpstreamErrorKind) => ({ message: new RegExp(`^upstream ${kind}:`) })

/** The head of an answer that ends with its connection. */
const EVENTS = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n'

const LONG = { connectMs: 60_000, firstByteMs: 60_000, idleMs: 60_000 }

const post = (base: string, more: Partial<UpstreamRequest> = {}): UpstreamRequest => {
  const url = new URL(`${base}/chat/completions`)
  const body = Buffer.from('{"model":"m"}')
  return {
    permit: CATALOGUE,
    method: 'POST',
    url,
    headers: ['host', url.host, 'content-type', 'application/json', 'content-length', String(body.length)],
    body: [body],
    timeouts: LONG,
    hangup: new CallHangup(),
    ...more,
  }
}

/** Calls, and reads the whole answer. */
const read = async (request: UpstreamRequest): Promise<string> =>
  String(await readWholeBody(await upstream.call(request), 1000))

/** Calls for an answer that is handed over as a stream. */
async function streamed(request: UpstreamRequest): Promise<Readable> {
  const { body } = await upstream.call(request)
  if (Buffer.isBuffer(body)) throw new Error('the answer was collected')
  return body
}

await t.test(
  'T1–T3 the upstream gets exactly the bytes that were given, and nothing that the library adds',
  async (t) => {
    const { url, seen } = await rawUpstream(t, (socket) => socket.write(answer(200, '{}')))
    await read(post(url))
    const host = new URL(url).host
    t.strictSame(seen[0]?.head.split('\r\n'), [
      'POST /v1/chat/completions HTTP/1.1',
      `host: ${host}`,
      'connection: keep-alive',
      'content-type: application/json',
      'content-length: 13',
    ])
    t.equal(seen[0]?.body.toString(), '{"model":"m"}')
  },
)

await t.test(
  'T17 the path of the target is taken as it is, dots, doubled slashes, query and all',
  async (t) => {
    const { url, seen } = await rawUpstream(t, (socket) => socket.write(answer(200, '{}')))
    await read(post(url, { url: new URL(`${url}//a%2e/b?c=d&e`) }))
    t.match(seen[0]?.head, /^POST \/v1\/\/a%2e\/b\?c=d&e HTTP\/1\.1\r\n/)
  },
)

await t.test('§3 an answer is handed over piece by piece, as the upstream wrote it', async (t) => {
  const { promise: mayGoOn, resolve: goOn } = Promise.withResolvers<void>()
  const { url } = await rawUpstream(t, (socket) => {
    socket.write(chunkedHead() + chunk('data: one\n\n'))
    void mayGoOn.then(() => socket.write(`${chunk('data: two\n\n')}0\r\n\r\n`))
  })
  const stream = await streamed(post(url))
  const pieces: string[] = []
  // The second is only written once the first was read: had it been held back, this would never end.
  for await (const piece of stream as AsyncIterable<Buffer>) {
    pieces.push(piece.toString())
    goOn()
  }
  t.strictSame(pieces, ['data: one\n\n', 'data: two\n\n'])
})

await t.test('F-14 a refused connection is an error of kind connect', async (t) => {
  await t.rejects(upstream.call(post(await nobody())), {
    message: /^upstream connect: ECONNREFUSED: nothing listens .* correct base_url$/,
  })
})

await t.test('F-14 a name that does not resolve is an error of kind connect', async (t) => {
  await t.rejects(upstream.call(post('http://nobody.invalid/v1')), ofKind('connect'))
})

await t.test(
  'F-14 an upstream that hangs before the head is an error of kind timeout, and is hung up on',
  async (t) => {
    const { url, closed } = await rawUpstream(t, () => {})
    await t.rejects(upstream.call(post(url, { timeouts: { ...LONG, firstByteMs: 20 } })), ofKind('timeout'))
    await closed
  },
)

await t.test('F-14 a TLS handshake that never ends counts as connecting', async (t) => {
  const server = createTcpServer((socket) => socket.on('error', () => {})).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const url = `https://127.0.0.1:${portOf(server.address())}/v1`
  await t.rejects(upstream.call(post(url, { timeouts: { ...LONG, connectMs: 20 } })), ofKind('connect'))
})

await t.test(
  'F-18 an upstream whose certificate nobody vouches for is an error of kind connect',
  async (t) => {
    const { key, pem } = await odd({
      name: '127.0.0.1',
      extensions: [],
      notBefore: 0,
      notAfter: Date.UTC(2099, 0),
    })
    const server = createTlsServer({ cert: pem, key: key.export({ type: 'pkcs8', format: 'pem' }) }).listen(
      0,
      '127.0.0.1',
    )
    await once(server, 'listening')
    t.teardown(() => server.close())
    let handshakes = 0
    server.on('secureConnection', () => {
      handshakes += 1
    })
    await t.rejects(upstream.call(post(`https://127.0.0.1:${portOf(server.address())}/v1`)), {
      message: /^upstream connect: DEPTH_ZERO_SELF_SIGNED_CERT: .* name that CA in NODE_EXTRA_CA_CERTS$/,
    })
    t.equal(handshakes, 0)
  },
)

await t.test('F-17 endless 1xx answers are cut off; a few are let pass', async (t) => {
  const flood = await rawUpstream(t, (socket) => {
    const more = () => {
      if (!socket.destroyed) socket.write('HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n', more)
    }
    more()
  })
  await t.rejects(upstream.call(post(flood.url)), { message: /^upstream reset: too many 1xx/ })
  await flood.closed
  const few = await rawUpstream(t, (socket) =>
    socket.write(`HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n${answer(200, '{}')}`),
  )
  t.equal((await upstream.call(post(few.url))).status, 200)
})

await t.test('F-17 a 100 that nobody asked for is an error of kind reset', async (t) => {
  const { url, seen } = await rawUpstream(t, (socket) =>
    socket.write(`HTTP/1.1 100 Continue\r\n\r\n${answer(200, '{}')}`),
  )
  await t.rejects(upstream.call(post(url)), { message: 'upstream reset: bad response' })
  t.equal(seen.length, 1)
})

for (const [name, text] of [
  ['64 KB of headers', `HTTP/1.1 200 OK\r\nx-a: ${'a'.repeat(65_536)}\r\ncontent-length: 0\r\n\r\n`],
  [
    'content-length and transfer-encoding at once',
    `HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n`,
  ],
  [
    'a header with a bare line feed in it',
    'HTTP/1.1 200 OK\r\nx-a: b\nset-cookie: c=d\r\ncontent-length: 0\r\n\r\n',
  ],
  ['no HTTP at all', 'SSH-2.0-x\r\n\r\n'],
  [
    'another protocol to switch to',
    'HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n',
  ],
] as const) {
  await t.test(`F-17 an upstream that answers with ${name} is an error of kind reset`, async (t) => {
    const { url } = await rawUpstream(t, (socket) => socket.write(text))
    await t.rejects(upstream.call(post(url)), ofKind('reset'))
  })
}

for (const [name, write] of [
  [
    'a reset',
    (socket) => socket.write(chunkedHead() + chunk('data: one\n\n'), () => socket.resetAndDestroy()),
  ],
  [
    'a reset where its connection alone ends it',
    (socket) => socket.write(`${EVENTS}data: one\n\n`, () => socket.resetAndDestroy()),
  ],
  ['an early end of a chunked answer', (socket) => socket.end(chunkedHead() + chunk('data: one\n\n'))],
  [
    'fewer bytes than announced',
    (socket) => socket.end(answer(200, 'data: one\n\n', { 'content-length': '99' })),
  ],
  ['a chunk that is none', (socket) => socket.write(`${chunkedHead()}${chunk('data: one\n\n')}zz\r\n`)],
] as const satisfies readonly (readonly [string, (socket: Socket) => void])[]) {
  await t.test(
    `F-16 ${name} in the middle of an answer is an error of the stream, never its end`,
    async (t) => {
      const { url } = await rawUpstream(t, write)
      const stream = await streamed(post(url))
      let ended = false
      stream.once('end', () => {
        ended = true
      })
      await t.rejects(collectBytes(stream, 1000))
      t.notOk(ended)
    },
  )
}

await t.test('an answer that its connection alone ends is whole where that is closed', async (t) => {
  const { url } = await rawUpstream(t, (socket) => socket.end(`${EVENTS}data: one\n\n`))
  t.equal(await read(post(url)), 'data: one\n\n')
})

const JSON_16K = JSON.stringify('x'.repeat(16_382))

await t.test(
  'a JSON answer of at most 16 KiB is handed over whole, in however many pieces it comes',
  async (t) => {
    const { url } = await rawUpstream(t, (socket) => {
      const bytes = answer(200, JSON_16K, { 'content-type': 'application/problem+json; charset=utf-8' })
      const write = (from: number) => {
        if (from < bytes.length)
          socket.write(bytes.slice(from, from + 4_000), () => setImmediate(write, from + 4_000))
      }
      write(0)
    })
    const { body } = await upstream.call(post(url))
    if (!Buffer.isBuffer(body)) throw new Error('the answer was not collected')
    t.equal(body.toString(), JSON_16K)
  },
)

for (const [what, text] of [
  ['is longer', answer(200, `${JSON_16K} `)],
  ['is a stream of events', answer(200, 'data: one\n\n', { 'content-type': 'text/event-stream' })],
  ['tells a failure', answer(503, '{}')],
  ['does not say how long it is', `${chunkedHead('application/json')}${chunk('{}')}0\r\n\r\n`],
] as const) {
  await t.test(`an answer that ${what} is handed over as it comes`, async (t) => {
    const { url } = await rawUpstream(t, (socket) => socket.write(text))
    const { body } = await upstream.call(post(url))
    t.notOk(Buffer.isBuffer(body))
    if (!Buffer.isBuffer(body)) t.ok(text.includes(String(await collectBytes(body, 20_000)).slice(0, 2)))
  })
}

for (const [what, cut, kind] of [
  ['breaks off', (socket) => socket.resetAndDestroy(), 'reset'],
  ['stalls', () => {}, 'timeout'],
] as const satisfies readonly (readonly [string, (socket: Socket) => void, UpstreamErrorKind])[]) {
  await t.test(
    `T4 a short answer that ${what} is handed over as far as it came, and is never whole`,
    async (t) => {
      const { url } = await rawUpstream(t, (socket) =>
        socket.write(answer(200, '{"a":', { 'content-length': '99' }), () => cut(socket)),
      )
      const stream = await streamed(post(url, { timeouts: { ...LONG, idleMs: 20 } }))
      const pieces: string[] = []
      stream.on('data', (piece: Buffer) => pieces.push(String(piece)))
      await t.rejects(once(stream, 'end'), ofKind(kind))
      t.strictSame(pieces, ['{"a":'])
    },
  )
}

await t.test('F-19 a caller who hangs up while a short answer comes has its request destroyed', async (t) => {
  const hangup = new CallHangup()
  const { url, closed } = await rawUpstream(t, (socket) =>
    socket.write(answer(200, '{"a":', { 'content-length': '99' }), () => hangup.hangUp()),
  )
  await t.rejects(upstream.call(post(url, { hangup })), {
    message: 'The caller disconnected before the answer.',
  })
  await closed
})

await t.test('threat 38 an answer that comes for longer than it may is broken off', async (t) => {
  const brief = openUpstream({ maxDurationMs: 0 })
  t.teardown(() => brief.close())
  for (const head of [chunkedHead(), answer(200, '', { 'content-length': '99' })]) {
    const { url, closed } = await rawUpstream(t, (socket) => socket.write(`${head}2\r\n{}\r\n`))
    const { body } = await brief.call(post(url))
    if (Buffer.isBuffer(body)) throw new Error('the answer is whole')
    await t.rejects(collectBytes(body, 100), ofKind('timeout'))
    await closed
  }
})

await t.test('headers that stand twice are read as Node reads them', async (t) => {
  const twice =
    'content-type: application/json\r\nx-ratelimit-a: 1\r\ncontent-type: text/html\r\nX-Ratelimit-A: 2\r\n'
  const { url } = await rawUpstream(t, (socket) =>
    socket.write(`HTTP/1.1 200 OK\r\n${twice}content-length: 2\r\n\r\n{}`),
  )
  const { headers } = await upstream.call(post(url))
  t.match(headers, { 'content-type': 'application/json', 'x-ratelimit-a': '1, 2' })
})

await t.test('F-15 an answer that stalls is destroyed with an error of kind timeout', async (t) => {
  const { url, closed } = await rawUpstream(t, (socket) =>
    socket.write(chunkedHead() + chunk('data: one\n\n')),
  )
  const stream = await streamed(post(url, { timeouts: { ...LONG, idleMs: 20 } }))
  await t.rejects(collectBytes(stream, 1000), ofKind('timeout'))
  await closed
})

await t.test('F-20 an answer that a slow reader holds back has not stalled', async (t) => {
  const { url } = await rawUpstream(t, (socket) => socket.write(answer(200, 'x'.repeat(4_000_000))))
  const stalling = await rawUpstream(t, (socket) => socket.write(chunkedHead() + chunk('data: one\n\n')))
  const timeouts = { ...LONG, idleMs: 20 }
  const held = await streamed(post(url, { timeouts }))
  // As long as others take to stall, twice.
  for (let stalled = 0; stalled < 2; stalled += 1) {
    await t.rejects(read(post(stalling.url, { timeouts })), ofKind('timeout'))
  }
  t.notOk(held.destroyed)
  t.ok(held.readableLength < 1_000_000, 'the rest waits at the other side')
  let length = 0
  for await (const piece of held as AsyncIterable<Buffer>) length += piece.length
  t.equal(length, 4_000_000)
})

await t.test('F-19 a caller who hangs up before the answer has the upstream request destroyed', async (t) => {
  const hangup = new CallHangup()
  const { url, closed } = await rawUpstream(t, () => hangup.hangUp())
  await t.rejects(upstream.call(post(url, { hangup })), {
    message: 'The caller disconnected before the answer.',
  })
  await closed
})

await t.test('F-19 a caller who hangs up during the answer has the upstream request destroyed', async (t) => {
  const hangup = new CallHangup()
  const { url, closed } = await rawUpstream(t, (socket) =>
    socket.write(chunkedHead() + chunk('data: one\n\n')),
  )
  const stream = await streamed(post(url, { hangup }))
  stream.once('data', () => hangup.hangUp())
  await closed
  t.ok(stream.destroyed)
})

await t.test('F-19 a caller who has hung up already causes no upstream request', async (t) => {
  const { url, connections } = await rawUpstream(t, () => {})
  const hangup = new CallHangup()
  hangup.hangUp(new Error('its authority is gone'))
  await t.rejects(upstream.call(post(url, { hangup })), { message: 'its authority is gone' })
  t.equal(connections(), 0)
})

await t.test('one connection serves one request after the other', async (t) => {
  const { url, seen } = await rawUpstream(t, (socket) => socket.write(answer(200, '{}')))
  for (let i = 0; i < 3; i += 1) {
    await read(post(url))
    // The connection goes back to the pool on the turn after.
    await new Promise(setImmediate)
  }
  t.strictSame(
    seen.map(({ connection }) => connection),
    [1, 1, 1],
  )
})

await t.test(
  'a request that meets a pooled connection closing is sent once more on a fresh one',
  async (t) => {
    const { url, seen } = await rawUpstream(t, (socket, { connection }) => {
      const first = seen.length === 1
      if (first || connection > 1) socket.write(answer(200, '{}'))
      else socket.resetAndDestroy()
    })
    for (let i = 0; i < 2; i += 1) {
      await read(post(url))
      await new Promise(setImmediate)
    }
    t.strictSame(
      seen.map(({ connection }) => connection),
      [1, 1, 2],
    )
    t.strictSame(seen[2]?.body, seen[1]?.body)
  },
)

await t.test('a connection that the other side reset while nobody used it costs no call', async (t) => {
  const { url, seen, closed } = await rawUpstream(t, (socket) => {
    socket.write(answer(200, '{}'), () => seen.length === 1 && socket.resetAndDestroy())
  })
  await read(post(url))
  await closed
  t.equal(await read(post(url)), '{}')
  t.equal(seen.length, 2)
})

await t.test('a request that dies on a fresh connection is not sent again', async (t) => {
  const { url, seen } = await rawUpstream(t, (socket) => socket.resetAndDestroy())
  await t.rejects(upstream.call(post(url)), ofKind('reset'))
  t.equal(seen.length, 1)
})

await t.test('a request that was answered with as much as a byte is not sent again', async (t) => {
  const { url, seen } = await rawUpstream(t, (socket) => {
    if (seen.length === 1) socket.write(answer(200, '{}'))
    else socket.write('HTTP/1.1 2', () => socket.resetAndDestroy())
  })
  await read(post(url))
  await new Promise(setImmediate)
  await t.rejects(upstream.call(post(url)), ofKind('reset'))
  t.equal(seen.length, 2)
})

await t.test('T2 no variable of the environment changes how requests are sent', async (t) => {
  const { url, seen } = await rawUpstream(t, (socket) => socket.write(answer(200, '{}')))
  const proxy = await rawUpstream(t, (socket) => socket.write(answer(200, '{}')))
  const set = { FORCE_FETCH_PATH: 'true', NODE_USE_ENV_PROXY: '1', HTTP_PROXY: proxy.url }
  const before = { ...process.env }
  Object.assign(process.env, set)
  t.teardown(() => {
    process.env = before
  })
  const other = openUpstream()
  t.teardown(() => other.close())
  t.equal((await other.call(post(url))).status, 200)
  await read(post(url))
  t.equal(proxy.connections(), 0)
  t.equal(seen[0]?.head, seen[1]?.head)
})
