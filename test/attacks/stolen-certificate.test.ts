import t from 'tap'
import { nonceOf, proofSigner, provenChat, tokenFor } from '../support/dpop.ts'
import { testGateway } from '../support/gateway.ts'

await t.test(
  'D-35 no_downgrade: who has stolen a certificate and its key passes with no token for a key of their own',
  async (t) => {
    const gateway = await testGateway(t, {
      files: { '20-dpop.yaml': 'plugin: dpop\nno_downgrade: true\n' },
    })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const [own, thief] = [proofSigner(), proofSigner()]
    await gateway.admin('POST', `/v1/admin/agents/${bot.id}/dpop-jwk`, own.jwk)
    const nonce = await nonceOf(gateway, bot)
    for (const [signer, expected] of [[thief, 401] as const, [own, 200] as const]) {
      const token: string = (await tokenFor(gateway, bot, signer)).json.access_token
      t.equal((await provenChat(gateway, bot, signer, { token, nonce })).status, expected)
    }
    t.equal(gateway.upstream.seen.length, 1)
  },
)
