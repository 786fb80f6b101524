import { once } from 'node:events'
import { connect } from 'node:net'
import t, { type Test } from 'tap'
import { CHAT, type Identity, type TestGateway, testGateway } from '../support/gateway.ts'
import { rawConnect, requestBytes, statuses } from '../support/raw.ts'
import { header2, vector, withChecksum } from '../support/tls/proxy-header.ts'
import { BALANCER, oneByOne, type Relayed, relay } from '../support/tls/relay.ts'

const BEHIND = { settings: { MCP_PROXY_PROXY_PROTOCOL: `${BALANCER},2001:db8::/32` } }

async function faults(gateway: TestGateway, reason: string): Promise<number> {
  const { text } = await gateway.admin('GET', '/metrics')
  return Number(new RegExp(`handshake_faults_total{reason="${reason}"} (\\d+)`).exec(text)?.[1] ?? 0)
}

interface Asked {
  readonly relayed: Relayed
  readonly headers?: readonly string[]
  readonly who?: Identity
  readonly path?: string
  /** Default: the runtime's. */
  readonly url?: string
}

/** The status of one request through a balancer. Rejects where no TLS comes about. */
async function through(t: Test, gateway: TestGateway, asked: Asked): Promise<number | undefined> {
  const { relayed, headers = [], who = null, path = '/health', url: target = gateway.url } = asked
  const url = await relay(t, target, relayed)
  const { send, closed } = await rawConnect(t, { url, ca: gateway.ca }, who)
  send(requestBytes('GET', path, ['connection: close', ...headers]))
  return statuses(await closed)[0]
}

const addressesOf = (gateway: TestGateway, path: string): readonly unknown[] =>
  gateway.log.filter((line) => line.path === path).map((line) => line.remote_address)

/** Connects as the balancer, or from another address, and says no more than it is told to. */
async function tcp(t: Test, { url }: Pick<TestGateway, 'url'>, localAddress = BALANCER) {
  const socket = connect({ host: '127.0.0.1', port: Number(new URL(url).port), localAddress, noDelay: true })
  t.teardown(() => socket.destroy())
  let received = ''
  socket
    .on('error', () => {})
    .on('data', (bytes: Buffer) => {
      received += bytes.toString('latin1')
    })
  const closed = new Promise<string>((resolve) => socket.once('close', () => resolve(received)))
  await once(socket, 'connect')
  return { socket, closed }
}

await t.test('who calls is whom the balancer names, in each way that there is to name them', async (t) => {
  const gateway = await testGateway(t, BEHIND)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const vectors = Buffer.concat([
    vector(1, 'h2'),
    vector(0x20, Buffer.alloc(64)),
    vector(4, Buffer.alloc(1_000)),
  ])
  const headers = {
    '192.0.2.1': 'PROXY TCP4 192.0.2.1 198.51.100.1 50007 443\r\n',
    '2001:db8::2': 'PROXY TCP6 2001:DB8:0::2 2001:db8::1 50007 443\r\n',
    '192.0.2.3': header2({ source: '192.0.2.3' }),
    '2001:db8::4': header2({ source: '2001:db8::4' }),
    '192.0.2.5': header2({ source: '::ffff:192.0.2.5', vectors }),
    '192.0.2.6': withChecksum({ source: '192.0.2.6', vectors }),
  }
  for (const [address, header] of Object.entries(headers)) {
    for (const how of ['joined', 'apart', 'bytes'] as const) {
      t.equal(
        await through(t, gateway, { relayed: { header, how }, who: bot, path: '/v1/models' }),
        200,
        `${address} ${how}`,
      )
    }
  }
  const named = Object.keys(headers).flatMap((address) => [address, address, address])
  t.same(addressesOf(gateway, '/v1/models'), named)
  t.equal(await faults(gateway, 'proxy_protocol'), 0)
})

await t.test('a balancer speaks for itself by LOCAL, UNKNOWN, and what is no TCP', async (t) => {
  const gateway = await testGateway(t, BEHIND)
  const headers = [
    header2({ command: 0x20, kind: 0, block: Buffer.alloc(0) }),
    header2({ command: 0x20 }),
    header2({ kind: 0x31, block: Buffer.alloc(216) }),
    'PROXY UNKNOWN\r\n',
  ]
  for (const header of headers) t.equal(await through(t, gateway, { relayed: { header } }), 200)
  t.same(
    addressesOf(gateway, '/health'),
    headers.map(() => BALANCER),
  )
})

await t.test('a look at the open port, with or without a header, is no fault', async (t) => {
  const gateway = await testGateway(t, BEHIND)
  for (const bytes of ['', header2({ command: 0x20, kind: 0, block: Buffer.alloc(0) })]) {
    const { socket, closed } = await tcp(t, gateway)
    socket.end(bytes)
    t.equal(await closed, '')
  }
  t.equal(await faults(gateway, 'proxy_protocol'), 0)
})

const GET = 'GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n'
const LIES = {
  'TLS without a header': Buffer.from([22, 3, 1, 2, 0]),
  'HTTP without a header': GET,
  'a header of version 3': header2({ command: 0x31 }),
  'a family that is not that of the addresses': header2({ kind: 0x21 }),
  'an address as a port': 'PROXY TCP4 192.0.2.1 192.0.2.2 192.0.2.1 443\r\n',
  'a wrong checksum': withChecksum({}, true),
  'a vector that is longer than its header': header2({ vectors: vector(4, 'x', 99) }),
  'an oversize vector': header2({ vectors: vector(4, Buffer.alloc(5_000)) }),
  'a length without end': header2({ length: 65_535 }),
  'a line without end': 'PROXY UNKNOWN '.padEnd(200, 'x'),
}

await t.test('what a balancer says without a sound header is not served, and counted', async (t) => {
  const gateway = await testGateway(t, BEHIND)
  for (const [name, bytes] of Object.entries(LIES)) {
    const { socket, closed } = await tcp(t, gateway)
    socket.write(bytes)
    t.equal(await closed, '', name)
  }
  const count = Object.keys(LIES).length
  t.equal(await faults(gateway, 'proxy_protocol'), count)
  const { socket, closed } = await tcp(t, gateway)
  socket.end(header2().subarray(0, 20))
  t.equal(await closed, '', 'it ends within its header')
  t.equal(await faults(gateway, 'proxy_protocol'), count + 1)
  await t.rejects(rawConnect(t, gateway, null, { localAddress: BALANCER }), 'a whole handshake')
})

await t.test('nobody else may name who calls, and all others are served as ever', async (t) => {
  const gateway = await testGateway(t, BEHIND)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  for (const header of [header2(), 'PROXY TCP4 192.0.2.1 198.51.100.1 50007 443\r\n'])
    await t.rejects(through(t, gateway, { relayed: { header, from: '127.0.0.3' }, who: bot }))
  t.equal(await faults(gateway, 'proxy_protocol'), 2)
  t.equal(await faults(gateway, 'plain_http'), 0)
  t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
  t.same(addressesOf(gateway, '/v1/chat/completions'), ['127.0.0.1'])
  t.same(addressesOf(gateway, '/health'), [])
})

await t.test('by default nobody may', async (t) => {
  const gateway = await testGateway(t)
  await t.rejects(through(t, gateway, { relayed: { header: header2() } }))
  t.equal(await faults(gateway, 'proxy_protocol'), 1)
  t.equal(await through(t, gateway, { relayed: { header: '' } }), 200)
  t.same(addressesOf(gateway, '/health'), [BALANCER])
})

await t.test(
  'a caller who brings a header of its own is behind the one that the balancer wrote',
  async (t) => {
    const gateway = await testGateway(t, BEHIND)
    const header = Buffer.concat([header2({ source: '192.0.2.1' }), header2({ source: '192.0.2.2' })])
    for (const how of ['joined', 'apart'] as const)
      await t.rejects(through(t, gateway, { relayed: { header, how } }))
    t.same(addressesOf(gateway, '/health'), [])
    t.equal(await faults(gateway, 'proxy_protocol'), 2)
  },
)

await t.test(
  'who guesses the operator’s secret waits, and nobody else behind the same balancer',
  async (t) => {
    const gateway = await testGateway(t, {
      settings: { ...BEHIND.settings, MCP_PROXY_ADMIN_LISTEN: '127.0.0.1:0' },
    })
    const guess = (source: string): Promise<number | undefined> =>
      through(t, gateway, {
        relayed: { header: header2({ source }) },
        headers: ['x-admin-secret: wrong'],
        path: '/v1/admin/agents',
        url: gateway.adminUrl,
      })
    for (const source of ['192.0.2.1', '::ffff:192.0.2.3', '2001:db8::1']) {
      for (let tries = 0; tries < 10; tries += 1) t.equal(await guess(source), 403)
      t.equal(await guess(source), 429, source)
    }
    for (const source of ['192.0.2.2', '::ffff:192.0.2.4', '2001:db8:0:1::1', BALANCER])
      t.equal(await guess(source), 403, source)
    t.equal(await guess('::ffff:192.0.2.1'), 429, 'the same one as IPv6')
    const { socket, closed } = await tcp(t, { url: gateway.adminUrl })
    socket.write(Buffer.from([22, 3, 1, 2, 0]))
    t.equal(await closed, '', 'the listener of administration asks for the header too')
  },
)

await t.test('the header counts into the time of the handshake', async (t) => {
  const gateway = await testGateway(t, { ...BEHIND, timers: { handshakeMs: 2_000 } })
  const timeouts = (): Promise<number> => faults(gateway, 'handshake_timeout')
  const silent = await tcp(t, gateway)
  const partial = await tcp(t, gateway)
  partial.socket.write(header2().subarray(0, 20))
  t.same(await Promise.all([silent.closed, partial.closed]), ['', ''])
  t.equal(await timeouts(), 2)
  const from = performance.now()
  const late = await tcp(t, gateway)
  setTimeout(() => late.socket.write(header2()), 1_500)
  await late.closed
  // Begun anew, it would be 3,500.
  t.ok(performance.now() - from < 3_400)
  t.equal(await timeouts(), 3)
})

await t.test('a header that is not whole when the gateway stops does not keep it', async (t) => {
  const gateway = await testGateway(t, { ...BEHIND, timers: { handshakeMs: 600_000 } })
  const { socket, closed } = await tcp(t, gateway)
  socket.write(header2().subarray(0, 20))
  await gateway.close(0)
  t.equal(await closed, '')
})

await t.test('a crowd behind the balancer pushes out itself, and nobody else behind it', async (t) => {
  const gateway = await testGateway(t, { ...BEHIND, timers: { handshakeMs: 60_000 } })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const named = async (source: string) => {
    const connection = await tcp(t, gateway)
    connection.socket.write(header2({ source }))
    return connection
  }
  const began = performance.now()
  const crowd = await Promise.all(Array.from({ length: 2_100 }, () => named('192.0.2.2')))
  const honest = await named('192.0.2.1')
  const relayed = { header: header2({ source: '192.0.2.3' }) }
  for (let call = 0; call < 3; call += 1)
    t.equal(await through(t, gateway, { relayed, who: bot, path: '/v1/models' }), 200)
  t.ok(performance.now() - began < 60_000, 'before the time of the first one is over')
  t.notOk(honest.socket.destroyed)
  t.ok((await faults(gateway, 'too_many_handshakes')) > 2_100 - 2_048)
  for (const { socket } of crowd) socket.destroy()
})

await t.test('a thousand headers that come a byte at a time keep nobody waiting', async (t) => {
  const gateway = await testGateway(t, { ...BEHIND, timers: { handshakeMs: 60_000 } })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const drips = await Promise.all(Array.from({ length: 1_000 }, () => tcp(t, gateway)))
  const header = header2({ vectors: vector(4, Buffer.alloc(20)) })
  const sent = Promise.all(drips.map(({ socket }) => oneByOne(header.subarray(0, -1), socket)))
  for (let call = 0; call < 5; call += 1)
    t.equal(await through(t, gateway, { relayed: { header }, who: bot, path: '/v1/models' }), 200)
  await sent
  t.equal(await through(t, gateway, { relayed: { header } }), 200)
  const left = performance.now()
  for (const { socket } of drips) socket.end('!')
  // Each has become a handshake of the caller that it names, which has left.
  await Promise.all(drips.map(({ closed }) => closed))
  t.ok(performance.now() - left < 60_000, 'at once, and not by the time of a handshake')
  t.equal(await faults(gateway, 'proxy_protocol'), 0)
})
