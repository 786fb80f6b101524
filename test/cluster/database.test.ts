import t from 'tap'
import { connectionFaults, databaseFaults } from '../support/cluster/faults.ts'
import { load, tally } from '../support/cluster/load.ts'
import { broken, openCalls } from '../support/cluster/oracle.ts'
import { clusterStage } from '../support/cluster/stage.ts'
import { under } from '../support/cluster/under.ts'
import { skipWithoutHaproxy } from '../support/haproxy.ts'

/** Two seconds are promised (docs/threats.md#f-10), here with room for a machine that does other things too. */
const HANGS_MS = 3_000

t.test('faults of the database under load', { skip: skipWithoutHaproxy }, async (t) => {
  const stage = await clusterStage(t)
  const bot = await stage.enroll('bot')
  const loads = [...stage.replicas, stage.door].map(({ url }) => load(stage, bot, { url, callers: 3 }))
  const made = () => loads.flatMap((way) => way.made)

  for (const fault of [...databaseFaults(stage), ...connectionFaults(stage)]) {
    await t.test(
      `${fault.id} ${fault.what}: 503 meanwhile, and then service as before, by itself`,
      async (t) => {
        const { meanwhile, slowestMs, resumedMs } = await under(fault, loads)
        t.comment(
          `${tally(meanwhile)}, the slowest ${Math.round(slowestMs)} ms, served again after ${Math.round(resumedMs)} ms`,
        )
        t.same(
          meanwhile.filter(({ status }) => status !== 200 && status !== 503),
          [],
          'no other answer, and no broken connection',
        )
        t.ok(slowestMs < HANGS_MS, 'nothing hangs')
      },
    )
  }

  await Promise.all(loads.map((way) => way.stop()))
  t.same(await openCalls(stage, 10_000), [], 'each call has its outcome')
  t.same(await broken(stage, made()), [], `what was acknowledged to ${made().length} callers is there, once`)

  // What is asked above could also be asked in vain.
  const [one] = made().filter(({ receipt }) => receipt)
  const forged = one?.receipt && {
    ...one,
    receipt: { ...one.receipt, hash: one.receipt.hash.replace(/./g, '0') },
  }
  t.match(
    forged && (await broken(stage, [forged])),
    [/^lost/],
    'a row that is another one than was promised is seen',
  )
  const [reached] = stage.provider.reached
  if (reached)
    stage.provider.reached.push({ ...reached, model: 'gpt-nobody' }, { ...reached, decided: false })
  t.match(
    await broken(stage, []),
    [/before its decision/, /2 times/, /gpt-nobody has 0 decisions/],
    'so is what nobody has decided',
  )
})
