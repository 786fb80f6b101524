import { createServer } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { PassThrough } from 'node:stream'
import t, { type Test } from 'tap'
import { type ReplyEnding, sendReply } from '../../proxy/http/send.ts'
import { ADMIN_SECRET, CHAT, testGateway } from '../support/gateway.ts'
import { chatBytes, rawConnect, requestBytes, statuses } from '../support/raw.ts'
import { eventually, settledCalls } from '../support/settled.ts'
import { completion } from '../support/upstream.ts'

const timers = {
  handshakeMs: 300,
  headersMs: 300,
  requestMs: 600,
  keepAliveMs: 300,
  checkMs: 50,
  writeStallMs: 300,
}

/** Sends one byte at a time for as long as the connection is open. */
function drip(t: Test, connection: Awaited<ReturnType<typeof rawConnect>>): void {
  const timer = setInterval(() => connection.send('a'), 20)
  t.teardown(() => clearInterval(timer))
  void connection.closed.then(() => clearInterval(timer))
}

t.test('T9 F-21 who is slow before a request is whole is hung up on', async (t) => {
  const gateway = await testGateway(t, { timers })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const { hostname, port } = new URL(gateway.url)

  await t.test('a TCP connection that never says ClientHello', async () => {
    const socket = connect(Number(port), hostname)
    t.teardown(() => socket.destroy())
    socket.resume()
    await new Promise((resolve) => socket.on('error', () => {}).once('close', resolve))
  })
  await t.test('TLS, and then nothing', async () => {
    const { closed } = await rawConnect(t, gateway, bot)
    await closed
  })
  await t.test('a request line, and then nothing', async (t) => {
    const { send, closed } = await rawConnect(t, gateway, bot)
    send('POST /v1/chat/completions HTTP/1.1\r\n')
    t.same(statuses(await closed), [408])
  })
  await t.test('headers that drip', async (t) => {
    const connection = await rawConnect(t, gateway, bot)
    connection.send('POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-drip: ')
    drip(t, connection)
    t.same(statuses(await connection.closed), [408])
  })
  await t.test('a body that drips, at a gated door', async (t) => {
    const connection = await rawConnect(t, gateway, bot)
    connection.send(requestBytes('POST', '/v1/chat/completions', ['content-length: 1000']))
    drip(t, connection)
    t.notMatch(await connection.closed, /HTTP\/1\.1 2/)
  })
  await t.test('a chunked body that drips, where none was wanted', async (t) => {
    const connection = await rawConnect(t, gateway, null)
    connection.send(requestBytes('GET', '/health', ['transfer-encoding: chunked']))
    const timer = setInterval(() => connection.send('1\r\na\r\n'), 20)
    t.teardown(() => clearInterval(timer))
    t.same(
      statuses(await connection.closed),
      [200],
      'and no second answer, which would be taken for that of a next request',
    )
  })
  await t.test('a kept connection that asks nothing more', async (t) => {
    const { send, closed } = await rawConnect(t, gateway, null)
    send(requestBytes('GET', '/health'))
    t.same(statuses(await closed), [200])
  })
  t.equal(gateway.upstream.seen.length, 0, 'nothing was dispatched')
})

t.test('F-22 a body that is too large is refused before it is kept, and its connection closed', async (t) => {
  // Both ends share one loop here, which all that is sent at once takes for a while.
  const patient = { ...timers, handshakeMs: 5_000, headersMs: 5_000, requestMs: 5_000 }
  const gateway = await testGateway(t, { timers: patient })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const mebibyte = `100000\r\n${'x'.repeat(1 << 20)}\r\n`
  const announced = await rawConnect(t, gateway, bot)
  announced.send(requestBytes('POST', '/v1/chat/completions', [`content-length: ${1 << 30}`]))
  const endless = await rawConnect(t, gateway, bot)
  endless.send(requestBytes('POST', '/v1/chat/completions', ['transfer-encoding: chunked']))
  for (let i = 0; i < 33; i += 1) endless.send(mebibyte)
  const admin = await rawConnect(t, gateway, null)
  const secret = `x-admin-secret: ${ADMIN_SECRET}`
  admin.send(requestBytes('POST', '/v1/admin/agents', [secret, `content-length: ${(1 << 20) + 1}`]))
  const answers = await Promise.all([announced, endless, admin].map(({ closed }) => closed))
  for (const answer of answers) {
    t.same(statuses(answer), [413])
    t.match(answer, 'body_too_large')
  }
  t.equal(gateway.upstream.seen.length, 0)
  const invalid = await gateway.rows({ action: 'egress_llm_chat', status: 'invalid' })
  t.equal(invalid.length, 2)
})

t.test('F-20 a client that never reads a streamed answer is cut off, and so is the provider', async (t) => {
  const gateway = await testGateway(t, { timers })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const aborted = Promise.withResolvers<number>()
  gateway.upstream.answer = (res) => {
    let sent = 0
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    const more = (): void => {
      do sent += 65_536
      while (res.write(`data: ${'x'.repeat(65_528)}\n\n`))
    }
    res.on('drain', more).once('close', () => aborted.resolve(sent))
    more()
  }
  const connection = await rawConnect(t, gateway, bot)
  connection.send(chatBytes('gpt-test', [], { stream: true }))
  await connection.until('HTTP/1.1 200 ')
  connection.socket.pause()
  const sent = await aborted.promise
  t.ok(sent < 64 * 1024 * 1024, `the provider was held back after ${sent} bytes`)
  const { ended } = await settledCalls(gateway)
  t.match(ended, [{ status: 'truncated', detail: { ending: 'write_stalled' } }])
})

t.test('F-20 a client that does not take the very end of an answer is cut off too', async (t) => {
  const source = new PassThrough()
  const ending = Promise.withResolvers<ReplyEnding>()
  const server = createServer((_req, res) => {
    const options = { headers: {}, writeStallMs: 300, onStream: () => {} }
    void sendReply(res, { status: 200, body: { source } }, options).then(ending.resolve)
    // Small pieces, until one stays behind because the client's side is full: then the answer ends.
    const timer = setInterval(() => {
      if (res.socket && res.socket.writableLength > 0) {
        clearInterval(timer)
        source.end()
      } else source.write(Buffer.alloc(8_000))
    }, 1)
    t.teardown(() => clearInterval(timer))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  const { port } = server.address() as AddressInfo
  const client = connect(port, '127.0.0.1')
  t.teardown(() => client.destroy())
  client.pause().on('error', () => {})
  client.write('GET / HTTP/1.1\r\nhost: localhost\r\n\r\n')
  const { reason } = await ending.promise
  t.equal(reason, 'write_stalled')
})

t.test('F-23 pipelined requests are answered in order, each judged by itself', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  // Of those that are served at once the first answers come last.
  const held: (() => void)[] = []
  gateway.upstream.answer = (res, seen) => {
    held.push(() => res.setHeader('content-type', 'application/json').end(seen.body))
    const isLast = gateway.upstream.seen.length === 10
    if (held.length === 4 || isLast) for (const release of held.splice(0).reverse()) release()
  }
  const models = Array.from({ length: 10 }, (_, i) => `gpt-${i}`)
  const connection = await rawConnect(t, gateway, bot)
  connection.send(models.map((model) => chatBytes(model)).join('') + requestBytes('GET', '/nothing'))
  const received = await connection.until('not_found_error')
  t.same(statuses(received), [...models.map(() => 200), 404])
  t.same(received.match(/gpt-\d/g), models)
  const { allowed } = await settledCalls(gateway)
  t.equal(allowed.length, 10)
})

t.test(
  'F-23 more than a hundred requests at once close their connection; each that was allowed has its outcome',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    gateway.upstream.answer = () => {}
    const connection = await rawConnect(t, gateway, bot)
    connection.send(Array.from({ length: 1_000 }, (_, i) => chatBytes(`gpt-${i}`)).join(''))
    t.same(statuses(await connection.closed), [])
    const { allowed, ended } = await settledCalls(gateway)
    t.ok(allowed.length <= 100, `${allowed.length} were allowed`)
    t.equal(ended.length, allowed.length)
    t.ok(gateway.upstream.seen.length <= allowed.length)
  },
)

t.test('F-19 F-23 a client that goes while its calls wait in line leaves nothing open', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const three = Promise.withResolvers<void>()
  let closed = 0
  gateway.upstream.answer = (res) => {
    res.once('close', () => {
      closed += 1
    })
    if (gateway.upstream.seen.length === 3) three.resolve()
  }
  const connection = await rawConnect(t, gateway, bot)
  connection.send(['gpt-a', 'gpt-b', 'gpt-c'].map((model) => chatBytes(model)).join(''))
  await three.promise
  connection.socket.destroy()
  const { allowed, ended } = await settledCalls(gateway)
  t.equal(allowed.length, 3)
  t.same(
    ended.map(({ status, detail }) => [status, detail.ending]),
    Array.from({ length: 3 }, () => ['truncated', 'client_gone']),
  )
  t.equal(
    await eventually(
      () => closed,
      (count) => count === 3,
    ),
    3,
    'every upstream call was given up',
  )
})

t.test('threat 10 an unknown expectation in line behind another call is refused in its turn', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const release = Promise.withResolvers<void>()
  gateway.upstream.answer = async (res, seen) => {
    await release.promise
    await completion(res, seen)
  }
  const connection = await rawConnect(t, gateway, bot)
  connection.send(chatBytes(CHAT.model) + requestBytes('GET', '/health', ['expect: 200-ok']))
  await eventually(
    () => gateway.upstream.seen.length,
    (count) => count === 1,
  )
  release.resolve()
  t.same(statuses(await connection.closed), [200, 417])
})
