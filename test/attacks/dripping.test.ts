import { once } from 'node:events'
import t from 'tap'
import { drip } from '../support/dripping.ts'
import { CHAT, PLUGIN_FILES, testGateway } from '../support/gateway.ts'
import { holdOf } from '../support/loop-hold.ts'

/** What the bound of 20 ms is on a machine that does other things at the same time. ms. */
const HELD_MS = 40

const body = JSON.stringify(CHAT)

for (const [type, before] of [
  ['application/json', '{"id":"1"'],
  ['text/event-stream', 'data: {}\n\n'],
] as const) {
  await t.test(`A3 ${type} of a provider in chunks of one byte holds nobody up`, async (t) => {
    const server = drip(t, ['server', type, before, '60000', '}'])
    const [port] = await once(server.stdout, 'data')
    const provider = `http://127.0.0.1:${String(port).trim()}`
    const files = { '50-llm.yaml': PLUGIN_FILES['50-llm.yaml']?.replaceAll('UPSTREAM', provider) ?? '' }
    const gateway = await testGateway(t, { files })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const args = ['caller', new URL(gateway.url).port, '2', '/v1/chat/completions', body]
    const { value, worstMs } = await holdOf(async () => {
      const [answers] = await once(drip(t, args, bot).stdout, 'data')
      return JSON.parse(String(answers))
    })
    const whole = [200, before.length + 60_001]
    t.same(value, [whole, whole])
    t.ok(worstMs < HELD_MS, `the loop was held up for ${worstMs} ms`)
  })
}

await t.test('A3 bodies in chunks of one byte on many connections hold nobody up', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const head = 'POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n'
  const args = ['client', new URL(gateway.url).port, '24', '20000', JSON.stringify(head), 'chunks']
  const { worstMs } = await holdOf(() => once(drip(t, args, bot).stdout, 'data'))
  t.ok(worstMs < HELD_MS, `the loop was held up for ${worstMs} ms`)
  t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
})
