import { once } from 'node:events'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import { OWN_AUTHORITY } from '../../plugins/call-authority.ts'
import { egressAgent } from '../../proxy/egress/agent.ts'
import { CallHangup } from '../../proxy/http/open-calls.ts'
import { answerTap } from '../../proxy/llm/dialects/answer-tap.ts'
import { DIALECT_BY_NAME } from '../../proxy/llm/dialects/registry.ts'
import { exchangeHttp } from '../../proxy/mcp/upstream/exchange.ts'
import { readEntireBody } from '../../proxy/mcp/upstream/message.ts'
import { drip } from '../support/dripping.ts'
import { CHAT, testGateway } from '../support/gateway.ts'
import { holdOf } from '../support/loop-hold.ts'
import { eventData } from '../support/mcp/event-data.ts'
import { rawConnect, requestBytes, statuses } from '../support/raw.ts'

setFlagsFromString('--expose-gc')
const collectGarbage: () => void = runInNewContext('gc')

const MIB = 1024 * 1024

/** For connections, and for what is parsed at the moment: one reading of 64 KiB is 11,000 pieces. */
const ROOM = 6 * MIB

/**
 * Measures what is held: objects, and the bytes behind buffers. The second collection waits for the first one
 * to have freed those bytes, which it does beside the program.
 */
function held(): number {
  collectGarbage()
  collectGarbage()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

for (const [manner, connections, bytes, framing] of [
  ['chunks', 6, 80_000, 'transfer-encoding: chunked'],
  ['records', 6, 20_000, 'content-length: 1000000'],
] as const) {
  await t.test(`A2 a body in ${manner} of one byte is held in the memory of its length`, async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const call = () => gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
    t.equal((await call()).status, 200)
    const before = held()
    const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n${framing}\r\n\r\n`
    const args = [new URL(gateway.url).port, String(connections), String(bytes), JSON.stringify(head), manner]
    const child = drip(t, ['client', ...args], bot)
    await once(child.stdout, 'data')
    // All of it is on its way: in so many turns it has been read, and each body waits for its end.
    for (let turn = 0; turn < 1000; turn += 1) await new Promise((resolve) => setImmediate(resolve))
    const grown = held() - before
    t.equal((await call()).status, 200, 'an honest caller is served beside it')
    t.comment(`${(grown / MIB).toFixed(1)} MiB for ${((connections * bytes) / MIB).toFixed(1)} MiB`)
    t.ok(grown < 1.1 * connections * bytes + ROOM, `${grown} bytes more are held`)
  })
}

await t.test('A2 setup is refused unread once a secret is stored, and takes 4 KiB before', async (t) => {
  const gateway = await testGateway(t, { settings: { MCP_PROXY_ADMIN_SECRET: '' } })
  const announced = async (length: number): Promise<readonly number[]> => {
    const { send, until } = await rawConnect(t, gateway, null)
    const headers = ['expect: 100-continue', `content-length: ${length}`]
    send(requestBytes('POST', '/v1/admin/setup', headers))
    return statuses(await until('x-request-id'))
  }
  t.strictSame(await announced(4097), [413])
  const body = { setup_code: gateway.setupCode, new_secret: 'my-first-secret' }
  const setUp = () => gateway.call(null, 'POST', '/v1/admin/setup', { body })
  t.equal((await setUp()).status, 204, 'the operator sets the secret')
  // Not asked to go on: the answer comes without the body.
  t.strictSame(await announced(100), [409])
  t.strictSame(await announced(MIB), [409])
  t.equal((await setUp()).status, 409)
})

await t.test('A3 what the usage tap keeps of an answer costs no more than its length', (t) => {
  for (const type of ['application/json', 'text/event-stream']) {
    const taps = Array.from({ length: 4 }, () => answerTap(DIALECT_BY_NAME.openai, type))
    const before = held()
    for (const tap of taps) for (let i = 0; i < 100_000; i += 1) tap.observe(Buffer.from(' '))
    const grown = held() - before
    t.ok(grown < 1.1 * 400_000 + 2 * MIB, `${type}: ${grown} bytes more are held`)
    t.strictSame(taps[0]?.usage(), {})
  }
  t.end()
})

for (const [type, before, after] of [
  ['application/json', '{', '}'],
  ['text/event-stream', 'data: {', '}\n\n'],
] as const) {
  await t.test(`A3 ${type} of an MCP server in chunks of one byte holds nobody up`, async (t) => {
    const child = drip(t, ['server', type, before, '600000', after])
    const [port] = await once(child.stdout, 'data')
    const agent = egressAgent({ allowPrivate: true, connectMs: 5_000, answerMs: 60_000 })
    t.teardown(() => agent.destroy())
    const origin = `http://127.0.0.1:${String(port).trim()}`
    const credentials = { headers: {}, tls: null, traces: [] }
    const connection = { agent, origin, path: '/', headers: [], credentials, answerMs: 60_000 }
    const hangup = new CallHangup()
    const authority = OWN_AUTHORITY
    const outgoing = {
      method: 'POST',
      headers: [],
      body: '{"id":1}',
      totalMs: 60_000,
      hangup,
      authority,
    } as const
    const read = async (): Promise<number> => {
      const { body } = await exchangeHttp(connection, outgoing)
      if (type === 'application/json') return (await readEntireBody(body, MIB)).length
      let length = 0
      const limits = { maxMessageBytes: MIB, maxAnswerBytes: MIB }
      for await (const event of eventData(body, limits)) length += event.length
      return length
    }
    const { value: length, worstMs } = await holdOf(read)
    t.comment(`${worstMs.toFixed(0)} ms`)
    t.equal(length, 600_002, 'it is read whole')
    t.ok(worstMs < 150, `the loop was held up for ${worstMs} ms`)
  })
}
