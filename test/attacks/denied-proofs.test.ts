import t from 'tap'
import { nonceOf, proof, proofSigner } from '../support/dpop.ts'
import { CHAT, testGateway } from '../support/gateway.ts'

await t.test(
  'D-17 a proof that came with a refused call does not pass when it comes again after a grant',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', [])
    const signer = proofSigner()
    const nonce = await nonceOf(gateway, bot)
    const htu = `${gateway.url}/v1/chat/completions`
    const dpop = proof(signer, { htm: 'POST', htu, nonce })
    const send = () => gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT, headers: { dpop } })
    t.equal((await send()).status, 403)
    await gateway.admin('PATCH', `/v1/admin/agents/${bot.id}/capabilities`, { capabilities: ['llm.chat'] })
    const again = await send()
    t.strictSame([again.status, again.json.reason], [401, 'proof_invalid'])
    t.equal(gateway.upstream.seen.length, 0)
    const rows = await gateway.rows({ action: 'egress_llm_chat', order: 'asc' })
    t.strictSame(
      rows.map(({ detail }) => detail.reason),
      ['capability_missing', 'proof_invalid'],
    )
  },
)
