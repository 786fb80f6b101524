import t from 'tap'
import { twoStages } from '../support/db/postgres/stages.ts'
import { CHAT } from '../support/gateway.ts'
import { exactlyTen } from '../support/limits/at-once.ts'

t.test(
  'of 100 calls at once on a budget for ten, exactly ten pass over two gateways, also if it was made at the other',
  async (t) => {
    const { one, other } = await twoStages(t)
    const bot = await one.enroll('bot', ['llm.chat'])
    const chat = (gateway: typeof one) => gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
    t.same([(await chat(one)).status, (await chat(other)).status], [200, 200], 'before there is one')
    const body = { name: 'ten', measure: 'calls', per: 'ever', amount: 10 }
    const made = await one.admin('POST', '/v1/admin/limits', body)
    t.equal(made.status, 201)
    await exactlyTen(t, 100, async (n) => (await chat(n % 2 === 0 ? one : other)).status)
    const raised = await other.admin('PATCH', `/v1/admin/limits/${made.json.limit_id}`, { amount: 11 })
    t.equal(raised.status, 200)
    const more = await Promise.all([chat(one), chat(other)])
    t.same(
      more.map(({ status }) => status).toSorted((one, other) => one - other),
      [200, 429],
      'a raised one holds at both',
    )
    t.equal((await one.admin('DELETE', `/v1/admin/limits/${made.json.limit_id}`)).status, 204)
    t.equal((await chat(other)).status, 200, 'a removed one at neither')
  },
)
