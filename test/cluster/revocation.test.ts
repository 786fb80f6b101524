import { randomInt } from 'node:crypto'
import t from 'tap'
import { heldCall } from '../support/cluster/held-call.ts'
import { callClock, load, type Made, tally } from '../support/cluster/load.ts'
import { broken, openCalls } from '../support/cluster/oracle.ts'
import { clusterStage } from '../support/cluster/stage.ts'
import type { Identity } from '../support/gateway.ts'
import { skipWithoutHaproxy } from '../support/haproxy.ts'
import { eventually } from '../support/settled.ts'

const CHANGES = 12

t.test('revocations under load on all replicas', { skip: skipWithoutHaproxy }, async (t) => {
  const stage = await clusterStage(t)
  const bots = [await stage.enroll('one'), await stage.enroll('two')]
  const grant = (bot: Identity, capabilities: readonly string[]) =>
    stage.admin(
      'PATCH',
      `/v1/admin/agents/${bot.id}/capabilities`,
      { capabilities },
      stage.replicas[randomInt(3)],
    )
  const loads = bots.map((bot) => stage.replicas.map(({ url }) => load(stage, bot, { url, callers: 2 })))
  const all = () => loads.flat().flatMap(({ made }) => made)

  await t.test(
    'B1 once a revocation is answered, the next request is refused at every replica, and none reaches the provider',
    async (t) => {
      const windows: { readonly id: string; readonly begin: number; readonly end: number }[] = []
      let slowest = 0
      for (let n = 0; n < CHANGES; n += 1) {
        const which = randomInt(bots.length)
        const [bot, ways] = [bots[which], loads[which]]
        if (!bot || !ways) throw new Error('there are two')
        const from = ways.map(({ made }) => made.length)
        await Promise.all(
          ways.map((way, k) => way.until((made) => made.slice(from[k]).some(({ status }) => status === 200))),
        )
        t.equal((await grant(bot, [])).status, 200)
        const begin = callClock()
        const refused = ({ status, sentAt }: Made) => status === 403 && sentAt > begin
        await Promise.all(ways.map((way) => way.until((made) => made.some(refused))))
        const firsts = ways.map(({ made }) => made.find(refused)?.endedAt ?? 0)
        slowest = Math.max(slowest, ...firsts.map((at) => at - begin))
        windows.push({ id: bot.id, begin, end: callClock() })
        t.equal((await grant(bot, ['llm.chat'])).status, 200)
      }
      t.comment(`every replica has refused a call ${Math.round(slowest)} ms after the answer, or sooner`)
      const inWindow = ({ by, sentAt, endedAt }: Made) =>
        windows.some(({ id, begin, end }) => by === id && sentAt > begin && endedAt < end)
      const judged = all().filter(inWindow)
      t.ok(judged.length >= 3 * CHANGES, tally(judged))
      t.same(
        judged.filter(({ status }) => status !== 403),
        [],
      )
      const models = new Set(judged.map(({ model }) => model))
      t.same(
        stage.provider.reached.filter(({ model }) => models.has(model)),
        [],
      )
    },
  )

  await t.test(
    'B2 calls that wait and calls that stream end at every replica within two seconds',
    async (t) => {
      const [, bot] = bots
      if (!bot) throw new Error('there are two')
      const held = await Promise.all(
        stage.replicas.flatMap((replica) =>
          (['wait', 'open'] as const).map((kind) => heldCall(t, stage, bot, kind, replica)),
        ),
      )
      t.equal((await grant(bot, [])).status, 200)
      const answered = callClock()
      const ends = await Promise.all(held.map(async ({ kind, at, lost }) => ({ kind, at, ...(await lost) })))
      t.same(
        ends.map(({ kind, status }) => `${kind} ${status}`),
        held.map(({ kind }) => (kind === 'wait' ? 'wait 403' : 'open 200')),
      )
      for (const end of ends) t.comment(`${end.kind} at ${end.at}: ${Math.round(end.lostAt - answered)} ms`)
      const models = held.map(({ model }) => model)
      const open = await eventually(
        () =>
          stage.provider.reached.filter(({ model, closedAt }) => models.includes(model) && closedAt === null),
        (left) => left.length === 0,
      )
      t.same(open, [], 'and the provider is hung up on')
    },
  )

  await Promise.all(loads.flat().map((way) => way.stop()))
  t.same(await openCalls(stage, 10_000), [])
  t.same(await broken(stage, all()), [])
})
