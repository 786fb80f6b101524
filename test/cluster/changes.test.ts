import t from 'tap'
import { broken } from '../support/cluster/oracle.ts'
import { clusterStage } from '../support/cluster/stage.ts'
import { skipWithoutHaproxy } from '../support/haproxy.ts'

const CHANGES = 50

t.test('50 changes of one set at once over three replicas', { skip: skipWithoutHaproxy }, async (t) => {
  const stage = await clusterStage(t)
  const bot = await stage.enroll('bot', [])
  const path = `/v1/admin/agents/${bot.id}/capabilities`
  const before = await stage.door.servers()
  const answers = await Promise.all(
    Array.from({ length: CHANGES }, (_, n) => stage.admin('PATCH', path, { capabilities: [`tool.n${n}`] })),
  )
  const spread = (await stage.door.servers()).map(({ sessions }, n) => sessions - (before[n]?.sessions ?? 0))
  t.ok(
    spread.every((sessions) => sessions >= 16),
    `each replica has its share: ${spread.join()}`,
  )
  t.same([...new Set(answers.map(({ status }) => status))], [200], 'each is answered')

  const { rows } = await stage.ledger(ROWS)
  t.equal(rows.length, CHANGES, 'and is one row')
  t.same(
    rows.map(({ revision }) => revision),
    rows.map((_, n) => n + 2),
    'with the next revision, in the order of the commits',
  )
  t.ok(new Set(rows.map(({ stream }) => stream)).size === 3, 'in the streams of all three')
  const sets = new Set(rows.map(({ capabilities }) => String(capabilities)))
  t.same(sets, new Set(Array.from({ length: CHANGES }, (_, n) => `tool.n${n}`)), 'each set is there')
  for (const replica of stage.replicas) {
    const { json } = await stage.admin('GET', `/v1/admin/agents/${bot.id}`, undefined, replica)
    t.same(json.capabilities, rows.at(-1)?.capabilities, `the last one stands at ${replica.name}`)
  }
  t.same(await broken(stage, []), [])
})

const ROWS = `select stream, (v.detail::json ->> 'revision')::int as revision, v.detail::json -> 'capabilities' as capabilities
  from audit_log v join audit_rows r using (stream, seq) where v.action = 'agent.capabilities_patched'
  order by pg_xact_commit_timestamp(r.xmin), stream, seq`
