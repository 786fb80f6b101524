import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { callClock, load, tally } from '../support/cluster/load.ts'
import { broken, openCalls } from '../support/cluster/oracle.ts'
import { clusterStage } from '../support/cluster/stage.ts'
import { skipWithoutHaproxy } from '../support/haproxy.ts'

/** Longer than the server lets a transaction stand idle. */
const PAUSED_MS = 5_000

t.test(
  'F-25 a replica that is stopped for a while under load (SIGSTOP)',
  { skip: skipWithoutHaproxy },
  async (t) => {
    const stage = await clusterStage(t)
    const [bot, other] = [await stage.enroll('bot'), await stage.enroll('other')]
    const [paused, ...rest] = stage.replicas
    if (!paused) throw new Error('there are three')
    const loads = stage.replicas.map(({ url }) => load(stage, bot, { url, callers: 4 }))
    const served = (which: typeof loads, after: number, count: number) =>
      Promise.all(
        which.map((way) =>
          way.until(
            (made) => made.filter(({ status, sentAt }) => status === 200 && sentAt > after).length >= count,
          ),
        ),
      )
    await served(loads, 0, 20)

    for (let round = 0; round < 3; round += 1) {
      paused.signal('SIGSTOP')
      const pausedAt = callClock()
      // In the middle of a transaction it would hold every change up until the server ends it.
      const path = `/v1/admin/agents/${other.id}/capabilities`
      const changed = await stage.admin('PATCH', path, { capabilities: [`tool.n${round}`] }, rest[0])
      t.equal(
        changed.status,
        200,
        `a change goes on without it, after ${Math.round(callClock() - pausedAt)} ms`,
      )
      await served(loads.slice(1), pausedAt, 20)
      await sleep(Math.max(0, pausedAt + PAUSED_MS - callClock()))
      paused.signal('SIGCONT')
      await served(loads, callClock(), 20)
    }
    t.comment(tally(loads[0]?.made ?? []))

    paused.signal('SIGSTOP')
    const revoked = await stage.admin(
      'PATCH',
      `/v1/admin/agents/${bot.id}/capabilities`,
      { capabilities: [] },
      rest[0],
    )
    t.equal(revoked.status, 200)
    paused.signal('SIGCONT')
    const resumedAt = callClock()
    await loads[0]?.until((made) => made.some(({ status, sentAt }) => status === 403 && sentAt > resumedAt))
    const late = loads.flatMap(({ made }) =>
      made.filter(({ status, sentAt }) => status === 200 && sentAt > resumedAt),
    )
    t.same(late, [], 'what was revoked meanwhile is refused by it from its first request on')
    await Promise.all(loads.map((way) => way.stop()))
    t.same(await openCalls(stage, 10_000), [])
    t.same(
      await broken(
        stage,
        loads.flatMap(({ made }) => made),
      ),
      [],
    )
  },
)
