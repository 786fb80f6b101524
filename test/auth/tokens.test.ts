import t from 'tap'
import { nonceOf, proofSigner, provenChat, tokenFor } from '../dpop.ts'
import { CHAT, testGateway } from '../gateway.ts'

await t.test('§5.2 a token bound to certificate and key opens the door with a fresh proof', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const signer = proofSigner()
  const { status, json } = await tokenFor(gateway, bot, signer)
  t.equal(status, 200)
  t.match(json, { token_type: 'DPoP', expires_in: 900, scope: 'llm.chat' })
  const nonce = await nonceOf(gateway, bot)
  const answered = await provenChat(gateway, bot, signer, { token: json.access_token, nonce })
  t.equal(answered.status, 200, answered.text)
  const [row] = await gateway.rows({ action: 'egress_llm_chat', status: 'allowed' })
  t.equal(row?.dpop_jkt, signer.jkt)
})

await t.test('§5.2 a token without a proof is bound to the certificate alone', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const eve = await gateway.enroll('eve', ['llm.chat'])
  const { json } = await tokenFor(gateway, bot, null)
  t.equal(json.token_type, 'Bearer')
  const headers = { authorization: `Bearer ${json.access_token}` }
  const chat = async (who: typeof bot) =>
    (await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT, headers })).status
  t.strictSame([await chat(bot), await chat(eve)], [200, 401])
})
