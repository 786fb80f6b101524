import t from 'tap'
import { CHAT, type Identity, sharedGateway, type TestGateway } from '../../../support/gateway.ts'

t.setTimeout(120_000)

const REHEARSALS = '/v1/admin/rehearsals'
const LIMITS = '/v1/admin/limits'

const rehearsed = async (gateway: TestGateway, limit: object) =>
  (await gateway.admin('POST', REHEARSALS, { changes: [{ limit }] })).json

async function chats(gateway: TestGateway, who: Identity, times: number) {
  const answers = []
  for (let n = 0; n < times; n += 1)
    answers.push(await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT }))
  return answers
}

t.test('what is rehearsed is what happens: the same calls of the same principals are refused', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat', 'team.red'])
  const other = await gateway.enroll('other', ['llm.chat'])
  const before = await chats(gateway, bot, 5)
  await chats(gateway, other, 2)
  const limit = {
    name: 'red',
    for: { holding: 'team.red' },
    ...{ measure: 'calls', per: 'ever', amount: 3 },
  }
  const found = await rehearsed(gateway, limit)
  const fourth = String(before[3]?.headers['x-request-id'])
  t.match(found.limits, [
    {
      ...{ limit_id: null, name: 'red', measure: 'calls', calls: 5, refused: 2, allowed: 0, undecidable: 0 },
      ...{ principals: 1, first_refused: { request_id: fourth } },
      groups: [
        { principal_id: bot.id, calls: 5, refused: 2, first_refused: { request_id: fourth }, highest: 3 },
      ],
    },
  ])
  t.match(
    found.limits[0].summary,
    /^in the last 30 days this would have refused 2 calls of 1 principal, first on \d+ \w+$/,
  )
  t.match(found.totals, { newly_refused: 2, newly_allowed: 0, undecidable: 0 })
  t.match(found.newly_refused, [{ principal_id: bot.id, reason: 'limit_reached', decisions: 2 }])

  const dry = await gateway.admin('POST', `${LIMITS}?dry_run=true`, limit)
  t.match(dry, { status: 200, json: { ...limit, each: false, rehearsal: { totals: { newly_refused: 2 } } } })
  t.notOk('limit_id' in dry.json, 'it has no id, since it is not made')
  t.notOk(
    (await gateway.admin('GET', LIMITS)).json.limits.some(({ name }: { name: string }) => name === 'red'),
  )
  const stale = await gateway.admin('POST', LIMITS, { ...limit, amount: 4 }, { 'if-rehearsed': found.id })
  t.equal(stale.status, 412, 'a rehearsal of another amount is none of this')
  const made = await gateway.admin('POST', LIMITS, limit, { 'if-rehearsed': found.id })
  t.equal(made.status, 201, JSON.stringify(made.json))
  const again = await chats(gateway, bot, 5)
  t.same(
    again.map(({ status }) => status),
    [200, 200, 200, 429, 429],
  )
  t.same(
    (await chats(gateway, other, 1)).map(({ status }) => status),
    [200],
  )

  t.equal((await gateway.admin('POST', `${LIMITS}?dry_run=true`, limit)).status, 409, 'its name is taken')
  const path = `${LIMITS}/${made.json.limit_id}`
  const raised = await gateway.admin('PATCH', `${path}?dry_run=true`, { amount: 100 })
  t.equal(raised.status, 200, JSON.stringify(raised.json))
  t.match(raised.json, { amount: 100, rehearsal: { totals: { newly_refused: 0, newly_allowed: 2 } } })
  t.match(raised.json.rehearsal.limits, [{ allowed: 2, refused: 0, calls: 10 }])
  t.match((await gateway.admin('GET', path)).json, { amount: 3 }, 'nothing has changed')
  const id = made.json.limit_id
  t.match((await rehearsed(gateway, { id, remove: true })).totals, { newly_refused: 0, newly_allowed: 2 })
  const override = { amount: 4, until: '2099-01-01T00:00:00Z', reason: 'the release' }
  // Of the ten, four pass: two of the six others were refused in fact.
  const lowered = await rehearsed(gateway, { id, override })
  t.match(lowered.totals, { newly_refused: 4, newly_allowed: 0 })
  t.match(lowered.limits, [{ refused: 6, allowed: 0 }])
})

t.test(
  'a limit that only alerts refuses nothing, and says when its parts would have been reached',
  async (t) => {
    const gateway = await sharedGateway(t)
    const bot = await gateway.enroll('quiet', ['llm.chat', 'team.quiet'])
    const answers = await chats(gateway, bot, 5)
    const ids = answers.map(({ headers }) => String(headers['x-request-id']))
    const found = await rehearsed(gateway, {
      ...{ name: 'quiet', for: { holding: 'team.quiet' }, on: 'alert' },
      ...{ measure: 'calls', per: 'ever', amount: 5 },
    })
    t.match(found.totals, { newly_refused: 0, newly_allowed: 0, undecidable: 0 })
    t.match(found.limits[0].reached, [
      { percent: 50, times: 1, first: { request_id: ids[2] } },
      { percent: 80, times: 1, first: { request_id: ids[3] } },
      { percent: 100, times: 1, first: { request_id: ids[4] } },
    ])
    t.match(
      found.limits[0].summary,
      /^in the last 30 days this would have refused none of 5 calls, and first reached 50 % on .*; it only alerts$/,
    )
  },
)

t.test(
  'calls of which no row says the cost are undecidable, and what contradicts itself is refused',
  async (t) => {
    const gateway = await sharedGateway(t)
    const bot = await gateway.enroll('unpriced', ['llm.chat', 'team.unpriced'])
    await chats(gateway, bot, 2)
    const cost = { name: 'usd', for: { holding: 'team.unpriced' }, measure: 'cost', amount: 1 }
    const found = await rehearsed(gateway, { ...cost, per: 'month' })
    t.match(found.totals, { newly_refused: 0, undecidable: 2 })
    t.match(found.limits, [{ calls: 0, undecidable: 2, summary: /of 2 calls nobody can tell$/ }])
    for (const [limit, field] of [
      [{ ...cost, per: 'second' }, 'per'],
      [{ ...cost, per: 'month', amount: -1 }, 'changes[0].limit.amount'],
      [{ ...cost, per: 'month', other: 1 }, 'changes[0].limit'],
      [{ id: 'lim_none', amount: 1 }, 'changes[0].limit.id'],
      [{ id: 'lim_none', remove: false }, 'changes[0].limit.remove'],
    ] as const) {
      const { status, json } = await gateway.admin('POST', REHEARSALS, { changes: [{ limit }] })
      t.equal(status, 422, JSON.stringify(json))
      t.match(JSON.stringify(json), field)
    }
  },
)
