import { createServer, type Server, type TLSSocket } from 'node:tls'
import t, { type Test } from 'tap'
import { CallHangup } from '../../../../proxy/http/open-calls.ts'
import { readWholeBody, type UpstreamRequest } from '../../../../proxy/llm/upstream/answer.ts'
import { openUpstream } from '../../../../proxy/llm/upstream/client.ts'
import { trusted } from '../../../support/llm/trusted.ts'
import { answer, portOf } from '../../../support/llm/upstreams.ts'
import { CATALOGUE } from '../../../support/permit.ts'

const upstream = openUpstream()
t.teardown(() => upstream.close())

const EVENTS = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: one\n\n'

/** A TLS server on 127.0.0.1 that answers whatever comes in one piece; calls are numbered from 1. */
async function tlsServer(t: Test, answered: (socket: TLSSocket, call: number) => void) {
  let calls = 0
  let connections = 0
  const server: Server = createServer(
    { ...(await trusted(t)), ALPNProtocols: ['h2', 'http/1.1'] },
    (socket) => {
      connections += 1
      protocols.push(String(socket.alpnProtocol))
      socket.on('error', () => {})
      socket.on('data', () => {
        calls += 1
        answered(socket, calls)
      })
    },
  )
  const protocols: string[] = []
  const tcp = new Set<{ readonly destroy: () => void; readonly resetAndDestroy: () => void }>()
  server.on('connection', (socket) => tcp.add(socket))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    for (const socket of tcp) socket.destroy()
    server.close()
  })
  return {
    port: portOf(server.address()),
    protocols,
    connections: () => connections,
    /** Resets every connection. */
    reset: () => {
      for (const socket of tcp) socket.resetAndDestroy()
    },
  }
}

const get = (base: string): UpstreamRequest => {
  const url = new URL(base)
  return {
    permit: CATALOGUE,
    method: 'GET',
    url,
    headers: ['host', url.host],
    body: [],
    timeouts: { connectMs: 60_000, firstByteMs: 60_000, idleMs: 60_000 },
    hangup: new CallHangup(),
  }
}

const read = async (base: string): Promise<string> =>
  String(await readWholeBody(await upstream.call(get(base)), 1000))

await t.test('F-18 TLS is verified by the name of the URL, whatever the environment says', async (t) => {
  const { port, protocols, connections } = await tlsServer(t, (socket) => socket.write(answer(200, '{}')))
  t.equal(await read(`https://127.0.0.1:${port}/`), '{}')
  // The connection goes back to the pool on the turn after.
  await new Promise(setImmediate)
  t.equal(await read(`https://127.0.0.1:${port}/`), '{}')
  t.equal(connections(), 1)
  t.strictSame(protocols, ['http/1.1'], 'HTTP/2 is not spoken')
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0'
  t.teardown(() => delete process.env.NODE_TLS_REJECT_UNAUTHORIZED)
  await t.rejects(read(`https://localhost:${port}/`), {
    message: /^upstream connect: ERR_TLS_CERT_ALTNAME_INVALID: .* correct the host in base_url/,
  })
})

await t.test('a pooled TLS connection that dies under a request has it sent once more', async (t) => {
  const server = await tlsServer(t, (socket, call) => {
    if (call === 2) server.reset()
    else socket.write(answer(200, `{"call":${call}}`))
  })
  t.equal(await read(`https://127.0.0.1:${server.port}/`), '{"call":1}')
  await new Promise(setImmediate)
  t.equal(await read(`https://127.0.0.1:${server.port}/`), '{"call":3}')
  t.equal(server.connections(), 2)
})

await t.test('F-16 a reset is no end of an answer that its connection alone ends', async (t) => {
  const server = await tlsServer(t, (socket) => void socket.write(EVENTS))
  const { body } = await upstream.call(get(`https://127.0.0.1:${server.port}/`))
  if (Buffer.isBuffer(body)) throw new Error('the answer was collected')
  body.once('data', () => server.reset())
  await t.rejects(readWholeBody({ status: 200, headers: {}, body, firstByteMs: 0 }, 1000), {
    message: /^upstream reset/,
  })
})
