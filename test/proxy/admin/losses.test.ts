import t from 'tap'
import { testGateway } from '../../support/gateway.ts'
import { signedInBySecret } from '../../support/oidc/jar.ts'

const files = {
  '50-llm.yaml': `plugin: llm
providers:
  - { name: claude, dialect: anthropic, base_url: UPSTREAM/v1, api_key: sk-only-there, models: ["claude-*"] }
`,
}

const DAY_MS = 86_400_000

await t.test(
  '§9 the page of providers says which losses calls were refused for, of which models and whose',
  async (t) => {
    let now = Date.now()
    const gateway = await testGateway(t, { files, clock: () => now })
    const [bot, other] = [
      await gateway.enroll('bot', ['llm.chat']),
      await gateway.enroll('other', ['llm.chat']),
    ]
    const ask = async (who: typeof bot, more: object) => {
      const body = { model: 'claude-opus-5', messages: [{ role: 'user', content: 'hi' }], ...more }
      return (await gateway.call(who, 'POST', '/v1/chat/completions', { body })).status
    }
    const card = async () => {
      const jar = await signedInBySecret(gateway)
      const { text } = await jar.ask('GET', '/proxy/providers')
      const [shown = ''] = /<section class="card" id="losses">.*?<\/section>/s.exec(text) ?? []
      return shown
    }
    t.match(await card(), 'None.')
    t.equal(await ask(bot, { seed: 1 }), 400)
    t.equal(await ask(bot, { seed: 1, logit_bias: {} }), 400)
    now += 5 * DAY_MS
    t.equal(await ask(other, { seed: 1 }), 400)
    t.equal(await ask(bot, {}), 502)
    const shown = await card()
    const lines = [...shown.matchAll(/<tr><td>.*?<\/tr>/gs)].map(([line]) => line)
    t.equal(lines.length, 2, shown)
    const [seed = '', bias = ''] = lines
    for (const said of [
      '<code>seed</code>',
      'claude-opus-5',
      '>3<',
      '/proxy/agents/acme%3A%3Abot',
      'acme::other',
    ])
      t.match(seed, said)
    for (const said of ['<code>logit_bias</code>', '>1<']) t.match(bias, said)
    t.notMatch(bias, 'acme::other')
    now += 26 * DAY_MS
    const later = await card()
    t.match(later, '>1<', 'those that are older than 30 days are not counted')
    t.notMatch(later, 'logit_bias')
  },
)
