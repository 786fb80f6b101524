import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { CHAT, type TestGateway, testGateway } from '../support/gateway.ts'

/** A connection without TLS, and all that comes back until it has closed. */
function plain(t: Test, { url }: TestGateway, allowHalfOpen = false) {
  const socket = connect({ host: '127.0.0.1', port: Number(new URL(url).port), allowHalfOpen })
  t.teardown(() => socket.destroy())
  return { socket, answer: answerOf(socket) }
}

function answerOf(socket: Socket): Promise<string> {
  const pieces: Buffer[] = []
  // A reset behind the answer takes nothing from what was read.
  socket.on('error', () => {}).on('data', (piece: Buffer) => pieces.push(piece))
  return new Promise((resolve) => {
    socket.once('close', () => resolve(Buffer.concat(pieces).toString()))
  })
}

async function faults(gateway: TestGateway, reason: string): Promise<number> {
  const { text } = await gateway.admin('GET', '/metrics')
  return Number(new RegExp(`handshake_faults_total{reason="${reason}"} (\\d+)`).exec(text)?.[1] ?? 0)
}

const GET = 'GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n'
const SENTENCE = /"message":"This port speaks HTTPS: use https:\/\/ in the URL\."/

await t.test('a client that speaks HTTP without TLS is told so, and its connection closes', async (t) => {
  const gateway = await testGateway(t)
  for (const bytes of [GET, 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'G']) {
    const { socket, answer } = plain(t, gateway)
    socket.write(bytes)
    const text = await answer
    t.match(text, /^HTTP\/1\.1 400 /)
    t.match(text, /\r\nconnection: close\r\n/)
    t.match(text, SENTENCE)
    const [head = '', body = ''] = text.split('\r\n\r\n')
    t.equal(Number(/content-length: (\d+)/.exec(head)?.[1]), Buffer.byteLength(body))
    t.match(JSON.parse(body), { reason: 'bad_request', error: { type: 'invalid_request_error' } })
  }
  const reply = await fetch(gateway.url.replace('https:', 'http:'), { headers: { connection: 'close' } })
  t.equal(reply.status, 400)
  t.match(await reply.text(), SENTENCE, 'as clients read it')
  t.equal(await faults(gateway, 'plain_http'), 4)
})

await t.test('it is told so too in the middle of a long body, and nothing of that is kept', async (t) => {
  const gateway = await testGateway(t)
  const { socket, answer } = plain(t, gateway)
  const piece = Buffer.alloc(65_536, 0x61)
  socket.write(`POST /v1/chat/completions HTTP/1.1\r\ncontent-length: ${64 * piece.length}\r\n\r\n`)
  for (let i = 0; i < 64; i += 1) socket.write(piece)
  t.match(await answer, SENTENCE)
})

await t.test('who does not hang up, and sends on, is hung up on', async (t) => {
  const gateway = await testGateway(t)
  const { socket, answer } = plain(t, gateway, true)
  socket.write(GET)
  await once(socket, 'end')
  const drip = setInterval(() => socket.write('x'), 20)
  t.match(await answer, SENTENCE)
  clearInterval(drip)
})

await t.test('what is neither TLS nor HTTP is hung up on as before', async (t) => {
  const gateway = await testGateway(t)
  for (const bytes of [
    Buffer.from([0, 1, 2, 3, 4, 5]),
    Buffer.alloc(20_000, 0x7a),
    Buffer.from('\r\n\r\n1234'),
  ]) {
    const { socket, answer } = plain(t, gateway)
    socket.end(bytes)
    t.notMatch(await answer, /HTTP/)
  }
  t.equal(await faults(gateway, 'plain_http'), 0)
})

await t.test('A1 plain HTTP in bulk costs less than handshakes do, and leaves nothing behind', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const ROUNDS = 24
  const AT_ONCE = 100
  const before = process.threadCpuUsage()
  for (let round = 0; round < ROUNDS; round += 1) {
    const all = Array.from({ length: AT_ONCE }, () => {
      const { socket, answer } = plain(t, gateway)
      socket.write(GET)
      return answer
    })
    t.ok((await Promise.all(all)).every((text) => SENTENCE.test(text)))
  }
  const { user, system } = process.threadCpuUsage(before)
  // Both ends of it: this thread is the client too.
  const ms = (user + system) / 1000 / (ROUNDS * AT_ONCE)
  t.ok(ms < 5, `${ms} ms each`)
  t.equal(await faults(gateway, 'plain_http'), ROUNDS * AT_ONCE)
  t.equal(await faults(gateway, 'too_many_handshakes'), 0, 'each has left the handshakes under way')
  t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
})
