import t from 'tap'
import { CHAT, testGateway } from '../support/gateway.ts'

await t.test(
  '§7 a principal without llm.chat is refused 403 with required_capability, streaming or not',
  async (t) => {
    const gateway = await testGateway(t)
    const nobody = await gateway.enroll('nobody', [])
    for (const path of [
      '/v1/chat/completions',
      '/v1/llm/chat',
      '/v1/messages',
      '/v1/responses',
      '/v1/embeddings',
    ]) {
      for (const stream of [false, true]) {
        const { status, json } = await gateway.call(nobody, 'POST', path, { body: { ...CHAT, stream } })
        t.equal(status, 403, `${path} stream=${stream}`)
        t.match(json, { reason: 'capability_missing', required_capability: 'llm.chat' })
        t.match(json.error, { type: 'permission_error', code: 'capability_missing' })
      }
    }
    t.equal(gateway.upstream.seen.length, 0, 'nothing was dispatched')
    const denied = (await gateway.rows()).filter(({ status }) => status === 'denied')
    t.equal(denied.length, 10, 'each refusal has its row')
    t.match(denied[0], {
      action: 'egress_llm_chat',
      principal_id: 'acme::nobody',
      detail: { reason: 'capability_missing', required_capability: 'llm.chat' },
    })
  },
)

await t.test('§7 a principal that holds llm.chat is served', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const { status, json } = await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
  t.equal(status, 200)
  t.equal(json.choices[0].message.content, 'hello')
})
