import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import { connect as connectTls } from 'node:tls'
import t, { type Test } from 'tap'
import { canTap } from '../../../proxy/tls/socket-tap.ts'
import { CHAT, type TestGateway, testGateway } from '../../support/gateway.ts'
import { rawConnect, requestBytes, statuses } from '../../support/raw.ts'
import { eventually } from '../../support/settled.ts'

const LIES_ON_STREAMS = /^TLS cannot lie on the sockets/
/** Answers of 65 KB each: more than the system keeps of what is written and not read. */
const EVENTS = 120
const WAYS = { 'TLS on the socket': 'true', 'TLS on a stream': 'false' }

/** Opens a gateway for each of the two ways in which TLS can lie on a connection, and runs tests of it. */
async function bothWays(t: Test, run: (t: Test, gateway: TestGateway) => Promise<void>): Promise<void> {
  for (const [name, MCP_PROXY_TLS_DIRECT] of Object.entries(WAYS))
    await t.test(name, async (t) => run(t, await testGateway(t, { settings: { MCP_PROXY_TLS_DIRECT } })))
}

/** The first bytes of a client, up to the answer that it waits for. */
async function clientHello(t: Test): Promise<Buffer> {
  const server = createServer().listen(0, '127.0.0.1')
  t.teardown(() => server.close())
  await once(server, 'listening')
  const client = connectTls({ host: '127.0.0.1', port: (server.address() as AddressInfo).port })
  client.on('error', () => {})
  const [socket] = await once(server, 'connection')
  const [bytes] = await once(socket, 'data')
  client.destroy()
  socket.destroy()
  return bytes
}

async function faults({ admin }: TestGateway): Promise<string[]> {
  const { text } = await admin('GET', '/metrics')
  return text.split('\n').filter((line) => /handshake_faults_total\{.* [1-9]/.test(line))
}

await t.test('this Node lets TLS lie on a socket of which we read first', async (t) => {
  t.ok(canTap())
})

await t.test('a client that reads slowly gets the whole of a long answer', (t) =>
  bothWays(t, async (t, gateway) => {
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const event = `data: {"choices":[{"delta":{"content":"${'x'.repeat(65_000)}"}}]}\n\n`
    gateway.upstream.answer = async (res) => {
      res.setHeader('content-type', 'text/event-stream')
      for (let i = 0; i < EVENTS; i += 1) if (!res.write(event)) await once(res, 'drain')
      res.end('data: [DONE]\n\n')
    }
    const { socket, send, closed } = await rawConnect(t, gateway, bot)
    socket.on('data', () => {
      socket.pause()
      setImmediate(() => socket.resume())
    })
    const body = JSON.stringify({ ...CHAT, stream: true })
    const headers = ['content-type: application/json', 'connection: close']
    send(requestBytes('POST', '/v1/chat/completions', headers, body))
    t.equal((await closed).match(/"delta"/g)?.length, EVENTS)
  }),
)

await t.test('a body that is longer than all buffers on its way arrives as it was sent', (t) =>
  bothWays(t, async (t, gateway) => {
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const content = Array.from({ length: 200_000 }, (_, i) => `${i}`).join(' ')
    const body = JSON.stringify({ ...CHAT, messages: [{ role: 'user', content }] })
    const { send, until } = await rawConnect(t, gateway, bot)
    const request = Buffer.from(
      requestBytes('POST', '/v1/chat/completions', ['content-type: application/json'], body),
    )
    for (let at = 0; at < request.length; at += 1_000) send(request.subarray(at, at + 1_000))
    t.same(statuses(await until('total_tokens')), [200])
    t.equal(gateway.upstream.seen[0]?.body.toString(), body)
  }),
)

await t.test(
  'a client that leaves in the middle of the handshake is no fault, and one that breaks it is',
  (t) =>
    bothWays(t, async (t, gateway) => {
      const hello = await clientHello(t)
      const { hostname, port } = new URL(gateway.url)
      const say = async (bytes: Buffer) => {
        const socket = connect({ host: hostname, port: Number(port) })
        t.teardown(() => socket.destroy())
        socket.on('error', () => {}).write(bytes)
        await Promise.race([once(socket, 'data'), once(socket, 'close')])
        return socket
      }
      for (const leave of ['resetAndDestroy', 'destroy', 'end'] as const) {
        const socket = await say(hello)
        socket[leave]()
        if (!socket.destroyed) await once(socket.resume(), 'close')
      }
      const { call } = gateway
      t.equal((await call(null, 'GET', '/health')).status, 200)
      t.same(await faults(gateway), [])
      const socket = await say(Buffer.concat([Buffer.from('160301000401000000', 'hex')]))
      if (!socket.closed) await once(socket.resume(), 'close')
      t.match(
        await eventually(
          () => faults(gateway),
          ({ length }) => length > 0,
        ),
        [/"handshake_failed"\} 1$/],
      )
    }),
)

await t.test('on a Node that is built otherwise TLS lies on streams, and the log says so once', async (t) => {
  const own = process.getBuiltinModule.bind(process)
  t.teardown(() => Object.assign(process, { getBuiltinModule: own }))
  Object.assign(process, {
    getBuiltinModule: (name: string) => (name === '_http_common' ? {} : own(name)),
  })
  t.notOk(canTap())
  const gateway = await testGateway(t)
  t.equal((await gateway.call(null, 'GET', '/health')).status, 200)
  t.equal(gateway.log.filter(({ msg }) => LIES_ON_STREAMS.test(msg)).length, 1)
})
