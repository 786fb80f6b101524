import t from 'tap'
import { openDatabase } from '../../db/engine.ts'
import { following } from '../support/dashboard.ts'
import { countsOfRows, keptCounts } from '../support/db/counts.ts'
import { allRows } from '../support/db/history.ts'
import { endPresence } from '../support/db/postgres/replica.ts'
import { twoStages } from '../support/db/postgres/stages.ts'
import { CHAT } from '../support/gateway.ts'
import type { Stage } from '../support/mcp/stage.ts'
import { signedInBySecret } from '../support/oidc/jar.ts'
import { eventually } from '../support/settled.ts'

t.setTimeout(240_000)

await t.test(
  'rows of all gateways are counted once each, whoever leads, also where the leader is lost',
  async (t) => {
    const { url, one, other } = await twoStages(t)
    const bot = await one.enroll('bot', ['llm.chat'])
    const chat = (stage: Stage) => stage.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
    const work = async (): Promise<void> => {
      await Promise.all([one, other, one, other, other].map(chat))
    }
    for (let round = 0; round < 4; round += 1) await work()
    await endPresence(url)
    for (let round = 0; round < 4; round += 1) await work()
    const database = await openDatabase(url)
    t.teardown(() => database.close())
    const counted = await eventually(
      async () => (await database.rowCounts.counted()) === (await database.rowCounts.last()),
      (is) => is,
      30_000,
    )
    t.ok(counted)
    const rows = []
    const last = await database.rowCounts.counted()
    for await (const row of allRows(database)) if (!('damaged' in row)) rows.push(row)
    t.equal(await database.rowCounts.last(), last, 'nothing has come meanwhile')
    t.same(await keptCounts(database), countsOfRows(rows))
    t.ok(rows.filter(({ status }) => status === 'allowed').length >= 40)
  },
)

await t.test('who follows at one gateway is told of what another one has recorded', async (t) => {
  const { one, other } = await twoStages(t)
  const bot = await one.enroll('bot', ['llm.chat'])
  const stream = await following(t, one, await signedInBySecret(one))
  t.equal(stream.status, 200)
  const place = (): number => Number([...stream.text().matchAll(/data: (\d+)/g)].at(-1)?.[1] ?? 0)
  // What the sign-in has left, is told first.
  await eventually(place, (is) => is > 0, 1_500)
  const before = place()
  await other.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
  const after = await eventually(place, (is) => is > before)
  t.ok(after > before, `${before} ${after}`)
})
