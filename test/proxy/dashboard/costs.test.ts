import t from 'tap'
import type { SpentCall } from '../../support/db/counts.ts'
import { signedInBySecret } from '../../support/oidc/jar.ts'
import { spentStage } from '../../support/spent.ts'

t.setTimeout(120_000)

const NOW = Date.now()

await t.test(
  'the page Costs, a principal, Attention, metrics and the command line say the same',
  async (t) => {
    const { gateway, zoe } = await spentStage(t, ({ bot, zoe }): readonly SpentCall[] => [
      ...Array.from({ length: 30 }, (_, n) => ({
        ...{ id: `req_${n}`, at: NOW, tokens: { input: 1_000, output: 50 } },
        cost: { microusd: 4_200, priced: n === 0 ? 'estimated' : 'stated' },
        names: { principal_id: n < 10 ? zoe : bot, model: `model-${n % 3}` },
      })),
      {
        ...{ id: 'req_odd', at: NOW, cost: { microusd: 0, priced: 'unpriced' } },
        names: { principal_id: bot, model: '<b>odd</b>' },
      },
    ])
    const jar = await signedInBySecret(gateway)
    const page = (await jar.ask('GET', '/proxy/costs')).text
    for (const said of [
      '0.126 USD',
      '31 calls',
      '0.0042 USD',
      'estimated',
      'without a price',
      'model-2',
      '<meter',
    ])
      t.match(page, said, said)
    t.notMatch(page, '<b>odd', 'a name that a caller made up is no HTML')
    t.match(page, /\/proxy\/agents\/\S+bot/)
    const own = (await jar.ask('GET', `/proxy/costs?principal=${zoe}`)).text
    t.match(own, '0.042 USD')
    t.notMatch(own, 'By principal')
    const [agent = ''] = /\/proxy\/agents\/[^"]+/.exec(page) ?? []
    t.match((await jar.ask('GET', agent)).text, /id="costs" data-load="\/proxy\/costs\?principal=/)
    t.match(
      (await jar.ask('GET', '/proxy')).text,
      /Models without a price[\s\S]*&lt;b&gt;odd[\s\S]*1 call of the/,
    )
    const metrics = (await gateway.admin('GET', '/metrics')).text
    t.match(metrics, 'sallyport_cost_microusd_total{provider="openai"} 126000')
    t.match(metrics, 'sallyport_unpriced_total{provider="openai"} 1')
    t.match((await gateway.admin('POST', '/v1/admin/audit/verify')).json, { ok: true })
  },
)
