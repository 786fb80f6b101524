import { once } from 'node:events'
import { createServer as createTcpServer, type Socket } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import t from 'tap'
import { collect } from '../../../../plugins/collect.ts'
import { openUpstream, type UpstreamRequest } from '../../../../proxy/llm/upstream/client.ts'
import type { UpstreamErrorKind } from '../../../../proxy/llm/upstream/error.ts'
import { odd } from '../../../support/certs/made.ts'
import { answer, chunk, chunkedHead, nobody, portOf, rawUpstream } from '../../../support/llm/upstreams.ts'
import { CATALOGUE } from '../../../support/permit.ts'

const upstream = openUpstream()
t.teardown(() => upstream.close())

const ofKind = (kind: UpstreamErrorKind) => ({ message: new RegExp(`^upstream ${kind}:`) })

const LONG = { connectMs: 60_000, firstByteMs: 60_000, idleMs: 60_000 }

const post = (base: string, more: Partial<UpstreamRequest> = {}): UpstreamRequest => {
  const url = new URL(`${base}/chat/completions`)
  const body = Buffer.from('{"model":"m"}')
  return {
    permit: CATALOGUE,
    method: 'POST',
    url,
    headers: { host: url.host, 'content-length': String(body.length), 'content-type': 'application/json' },
    body: [body],
    timeouts: LONG,
    signal: new AbortController().signal,
    ...more,
  }
}

await t.test(
  'T1–T3 the upstream gets exactly the bytes that were given, and nothing that the library adds',
  async (t) => {
    const { url, seen } = await rawUpstream(t, (socket) => socket.write(answer(200, '{}')))
    const { stream } = await upstream.call(post(url))
    await collect(stream, 100)
    const host = new URL(url).host
    t.strictSame(seen[0]?.head.split('\r\n'), [
      'POST /v1/chat/completions HTTP/1.1',
      `host: ${host}`,
      'content-length: 13',
      'content-type: application/json',
      'Connection: keep-alive',
    ])
    t.equal(seen[0]?.body.toString(), '{"model":"m"}')
  },
)

await t.test(
  'T17 the path of the target is taken as it is, dots, doubled slashes, query and all',
  async (t) => {
    const { url, seen } = await rawUpstream(t, (socket) => socket.write(answer(200, '{}')))
    const { stream } = await upstream.call(post(url, { url: new URL(`${url}//a%2e/b?c=d&e`) }))
    await collect(stream, 100)
    t.match(seen[0]?.head, /^POST \/v1\/\/a%2e\/b\?c=d&e HTTP\/1\.1\r\n/)
  },
)

await t.test('§3 an answer is handed over piece by piece, as the upstream wrote it', async (t) => {
  const { promise: mayGoOn, resolve: goOn } = Promise.withResolvers<void>()
  const { url } = await rawUpstream(t, (socket) => {
    socket.write(chunkedHead() + chunk('data: one\n\n'))
    void mayGoOn.then(() => socket.write(`${chunk('data: two\n\n')}0\r\n\r\n`))
  })
  const { stream } = await upstream.call(post(url))
  const pieces: string[] = []
  // The second is only written once the first was read: had it been held back, this would never end.
  for await (const piece of stream as AsyncIterable<Buffer>) {
    pieces.push(piece.toString())
    goOn()
  }
  t.strictSame(pieces, ['data: one\n\n', 'data: two\n\n'])
})

await t.test('F-14 a refused connection is an error of kind connect', async (t) => {
  await t.rejects(upstream.call(post(await nobody())), ofKind('connect'))
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
      message: 'upstream connect: DEPTH_ZERO_SELF_SIGNED_CERT',
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
    socket.write(`HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n${answer(200, '{}')}`),
  )
  t.equal((await upstream.call(post(few.url))).status, 200)
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
      const { stream } = await upstream.call(post(url))
      let ended = false
      stream.once('end', () => {
        ended = true
      })
      await t.rejects(collect(stream, 1000))
      t.notOk(ended)
    },
  )
}

await t.test('F-15 an answer that stalls is destroyed with an error of kind timeout', async (t) => {
  const { url, closed } = await rawUpstream(t, (socket) =>
    socket.write(chunkedHead() + chunk('data: one\n\n')),
  )
  const { stream } = await upstream.call(post(url, { timeouts: { ...LONG, idleMs: 20 } }))
  await t.rejects(collect(stream, 1000), ofKind('timeout'))
  await closed
})

await t.test('F-20 an answer that a slow reader holds back has not stalled', async (t) => {
  const { url } = await rawUpstream(t, (socket) => socket.write(answer(200, 'x'.repeat(4_000_000))))
  const { stream } = await upstream.call(post(url, { timeouts: { ...LONG, idleMs: 20 } }))
  stream.once('data', () => stream.pause())
  await once(stream, 'pause')
  await once(stream.socket, 'timeout')
  await once(stream.socket, 'timeout')
  t.notOk(stream.destroyed)
  let rest = 0
  stream.on('data', (piece: Buffer) => {
    rest += piece.length
  })
  stream.resume()
  await once(stream, 'end')
  t.ok(rest > 3_000_000)
})

await t.test('F-19 a caller who hangs up before the answer has the upstream request destroyed', async (t) => {
  const caller = new AbortController()
  const { url, closed } = await rawUpstream(t, () => caller.abort())
  await t.rejects(upstream.call(post(url, { signal: caller.signal })), { name: 'AbortError' })
  await closed
})

await t.test('F-19 a caller who hangs up during the answer has the upstream request destroyed', async (t) => {
  const caller = new AbortController()
  const { url, closed } = await rawUpstream(t, (socket) =>
    socket.write(chunkedHead() + chunk('data: one\n\n')),
  )
  const { stream } = await upstream.call(post(url, { signal: caller.signal }))
  stream.once('data', () => caller.abort())
  await closed
  t.ok(stream.destroyed)
})

await t.test('F-19 a caller who has hung up already causes no upstream request', async (t) => {
  const { url, connections } = await rawUpstream(t, () => {})
  await t.rejects(upstream.call(post(url, { signal: AbortSignal.abort() })), { name: 'AbortError' })
  t.equal(connections(), 0)
})

await t.test('one connection serves one request after the other', async (t) => {
  const { url, seen } = await rawUpstream(t, (socket) => socket.write(answer(200, '{}')))
  for (let i = 0; i < 3; i += 1) {
    const { stream } = await upstream.call(post(url))
    await collect(stream, 100)
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
      const { stream } = await upstream.call(post(url))
      await collect(stream, 100)
      await new Promise(setImmediate)
    }
    t.strictSame(
      seen.map(({ connection }) => connection),
      [1, 1, 2],
    )
    t.strictSame(seen[2]?.body, seen[1]?.body)
  },
)

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
  const { stream } = await upstream.call(post(url))
  await collect(stream, 100)
  await new Promise(setImmediate)
  await t.rejects(upstream.call(post(url)), ofKind('reset'))
  t.equal(seen.length, 2)
})

await t.test(
  'T2 with FORCE_FETCH_PATH set, which makes the library send in another way, nothing is opened',
  async (t) => {
    process.env.FORCE_FETCH_PATH = 'true'
    t.teardown(() => {
      delete process.env.FORCE_FETCH_PATH
    })
    t.throws(() => openUpstream(), { message: /FORCE_FETCH_PATH/ })
  },
)
