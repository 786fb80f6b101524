import t from 'tap'
import { testGateway } from '../../../support/gateway.ts'

const TIMES = 50

await t.test(
  '§4.4 fifty replacements at once without If-Match all succeed, one row each, and the last one stands',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', [])
    const path = `/v1/admin/agents/${bot.id}/capabilities`
    const patch = (n: number) => gateway.admin('PATCH', path, { capabilities: [`n.${n}`] })
    const answers = await Promise.all(Array.from({ length: TIMES }, (_, n) => patch(n)))
    t.same([...new Set(answers.map(({ status }) => status))], [200])
    const rows = (
      await gateway.rows({ action: 'agent.capabilities_patched', order: 'asc', limit: 1000 })
    ).toSorted((one, other) => one.seq - other.seq)
    t.equal(rows.length, TIMES)
    t.same(
      rows.map(({ detail }) => detail.revision),
      Array.from({ length: TIMES }, (_, n) => n + 2),
      'each makes the next revision',
    )
    for (const [n, { detail }] of rows.entries())
      t.same(detail.previous, n === 0 ? [] : rows[n - 1]?.detail.capabilities, 'and says what was before it')
    const { json } = await gateway.admin('GET', `/v1/admin/agents/${bot.id}`)
    t.same(json.capabilities, rows.at(-1)?.detail.capabilities)
  },
)

await t.test(
  'of fifty replacements at once with one If-Match, one succeeds and nothing else is changed',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', [])
    const path = `/v1/admin/agents/${bot.id}`
    const { headers } = await gateway.admin('GET', path)
    const etag = { 'if-match': String(headers.etag) }
    const patch = (n: number) =>
      gateway.admin('PATCH', `${path}/capabilities`, { capabilities: [`n.${n}`] }, etag)
    const answers = await Promise.all(Array.from({ length: TIMES }, (_, n) => patch(n)))
    const won = answers.filter(({ status }) => status === 200)
    t.equal(won.length, 1)
    t.ok(answers.every(({ status }) => status === 200 || status === 412))
    t.same((await gateway.admin('GET', path)).json.capabilities, won[0]?.json.capabilities)
    t.equal((await gateway.rows({ action: 'agent.capabilities_patched' })).length, 1)
  },
)

await t.test(
  'changes of every kind at once on one principal all succeed, and the rows say its state',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', [])
    const path = `/v1/admin/agents/${bot.id}`
    const changes = Array.from({ length: 10 }, (_, n) => [
      gateway.admin('PATCH', `${path}/capabilities`, { capabilities: [`n.${n}`] }),
      gateway.admin('POST', `${path}/reactivate`),
      gateway.admin('POST', `${path}/rotate-cert`, { grace_hours: 1 }),
      gateway.admin('DELETE', path),
    ]).flat()
    const statuses = (await Promise.all(changes)).map(({ status }) => status)
    t.same(new Set(statuses), new Set([200, 204]))
    // By their place: the time is that of each one's arrival.
    const rows = (await gateway.rows())
      .filter(({ detail }) => detail.subject === bot.id)
      .toSorted((one, other) => one.seq - other.seq)
    t.same(
      rows.map(({ detail }) => detail.revision),
      rows.map((_, index) => index + 1),
      'one revision for each row',
    )
    const { json } = await gateway.admin('GET', path)
    const last = rows.at(-1)?.detail
    t.match(last, { capabilities: json.capabilities, is_active: json.is_active })
    t.match(last?.thumbprints, [[json.cert_thumbprint, null]])
  },
)
