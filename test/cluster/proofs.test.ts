import { randomInt } from 'node:crypto'
import t from 'tap'
import { broken, openCalls } from '../support/cluster/oracle.ts'
import { clusterStage } from '../support/cluster/stage.ts'
import { storm } from '../support/cluster/storm.ts'
import { skipWithoutHaproxy } from '../support/haproxy.ts'

/** A run of all 1,000 takes some minutes: `CLUSTER_ROUNDS=1000`. */
const ROUNDS = Number(process.env.CLUSTER_ROUNDS ?? 15)
const KILLS = 3

t.test('D-17 of 100 identical proofs at once', { skip: skipWithoutHaproxy }, async (t) => {
  const stage = await clusterStage(t)
  const bot = await stage.enroll('bot')
  const before = await stage.door.servers()
  const { round } = await storm(t, stage, bot)

  await t.test(`exactly one passes, in each of ${ROUNDS} rounds over three replicas`, async (t) => {
    const wrong = []
    for (let n = 0; n < ROUNDS; n += 1) {
      const { passed, replayed, model, told } = await round()
      const reached = stage.provider.reached.filter((one) => one.model === model).length
      if (passed !== 1 || replayed !== 99 || reached !== 1) wrong.push({ n, passed, replayed, reached, told })
    }
    t.same(wrong, [])
    const opened = (await stage.door.servers()).map(
      ({ sessions }, n) => sessions - (before[n]?.sessions ?? 0),
    )
    t.ok(
      opened.every((sessions) => sessions >= 30),
      `each replica has its share: ${opened.join()}`,
    )
  })

  await t.test('at most one passes while a replica is killed, and none afterwards', async (t) => {
    for (let n = 0; n < KILLS; n += 1) {
      const victim = stage.replicas[n % 3]
      const { passed, model, again, unserved } = await round(async () => {
        await new Promise((resolve) => setTimeout(resolve, randomInt(60)))
        await victim?.kill()
      })
      t.ok(passed <= 1, `${passed} passed, ${unserved} were not served`)
      await victim?.start()
      await stage.door.until((servers) => servers.every(({ up }) => up))
      // Where nobody has claimed it, one of these does.
      for (let tries = 0; tries < 5; tries += 1) await again()
      const { rows } = await stage.ledger(ALLOWED, [`%"model":"${model}"%`])
      t.same(rows, [{ count: 1 }], 'one decision, whoever has seen it')
      t.ok(stage.provider.reached.filter((one) => one.model === model).length <= 1)
    }
  })
  t.same(await broken(stage, []), [])
  // Those of the killed ones are closed by the others in due time: test/cluster/killed.test.ts.
  t.ok((await openCalls(stage, 0)).length <= KILLS)
})

const ALLOWED = `select count(*)::int as count from audit_log where status = 'allowed' and leaf like $1`
