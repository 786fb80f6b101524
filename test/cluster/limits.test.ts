import t from 'tap'
import { heldCall } from '../support/cluster/held-call.ts'
import { callOnce, type Made } from '../support/cluster/load.ts'
import { broken } from '../support/cluster/oracle.ts'
import { onePortStage } from '../support/cluster/stage.ts'
import { agentOf } from '../support/gateway.ts'
import { exactlyTen } from '../support/limits/at-once.ts'
import { eventually } from '../support/settled.ts'

t.test('limits hold over four gateways that share a port', async (t) => {
  const stage = await onePortStage(t, 4)
  const limit = async (body: object): Promise<void> => {
    const { status } = await stage.admin('POST', '/v1/admin/limits', body)
    t.equal(status, 201)
  }
  const made: Made[] = []

  await t.test('of 200 calls at once on a budget for ten, exactly ten pass', async (t) => {
    const bot = await stage.enroll('many', ['llm.chat', 'team.many'])
    await limit({ name: 'ten', for: { holding: 'team.many' }, measure: 'calls', per: 'ever', amount: 10 })
    // A connection for a few calls each: the kernel shares them out.
    const agents = Array.from({ length: 40 }, () => agentOf(stage.ca, bot, true))
    t.teardown(() => {
      for (const agent of agents) agent.destroy()
    })
    await exactlyTen(t, 200, async (n) => {
      const one = await callOnce(stage.door.url, bot, agents[n % agents.length] ?? agentOf(stage.ca, bot))
      made.push(one)
      return one.status
    })
    const served = new Set(made.flatMap(({ receipt }) => receipt?.stream ?? []))
    t.equal(served.size, 4, 'each gateway has had some')
  })

  await t.test(
    'of forty at once ten are under way, never eleven, and an end makes room for one',
    async (t) => {
      const bot = await stage.enroll('slow', ['llm.chat', 'team.slow'])
      await limit({ name: 'at-once', for: { holding: 'team.slow' }, measure: 'concurrent', amount: 10 })
      const wait = () => heldCall(t, stage, bot, 'wait', { name: 'any', url: stage.door.url })
      const open = () =>
        stage.provider.reached.filter(
          ({ model, closedAt }) => model.startsWith('gpt-wait-') && closedAt === null,
        )
      const begun = await Promise.allSettled(Array.from({ length: 40 }, wait))
      const held = begun.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
      t.same([held.length, open().length], [10, 10])
      for (const one of begun)
        if (one.status === 'rejected') t.match(String(one.reason), /lost before it had begun: 429/)
      held.pop()?.hangUp()
      const next = await eventually(
        () => wait().catch(() => null),
        (one) => one !== null,
      )
      t.equal(open().length, 10)
      await t.rejects(wait(), /429/)
      for (const one of [...held, next]) one?.hangUp()
    },
  )

  await t.test('every call is recorded, the chain verifies, and nothing stays held', async (t) => {
    t.same(await broken(stage, made), [])
    const held = await eventually(
      () => stage.ledger('select limit_id, reserved from limit_meters where reserved <> 0'),
      ({ rows }) => rows.length === 0,
    )
    t.same(held.rows, [])
    t.match((await stage.admin('POST', '/v1/admin/audit/verify')).json, { ok: true })
  })
})
