import t from 'tap'
import { synchronousStandby } from '../support/cluster/database.ts'
import { load, tally } from '../support/cluster/load.ts'
import { broken, openCalls } from '../support/cluster/oracle.ts'
import { clusterStage } from '../support/cluster/stage.ts'
import { under } from '../support/cluster/under.ts'
import { skipWithoutHaproxy } from '../support/haproxy.ts'

t.test(
  'F-09 the database fails over to its synchronous standby under load: nothing that was acknowledged is lost, and service goes on',
  { skip: skipWithoutHaproxy },
  async (t) => {
    const stage = await clusterStage(t)
    const standby = await synchronousStandby(t, stage.database)
    const bot = await stage.enroll('bot')
    const loads = stage.replicas.map(({ url }) => load(stage, bot, { url, callers: 4 }))
    await t.test(
      'F-09 replicas that were led to a standby go back to the primary by themselves',
      async (t) => {
        const led = await under(
          {
            id: 'F-09',
            what: 'led to a standby',
            stopsAll: true,
            begin: () => {
              for (const { link } of stage.replicas) {
                link.target = standby.socket
                link.cut('reset')
              }
            },
            // Not one connection is cut.
            end: () => {
              for (const { link } of stage.replicas) link.target = stage.database.socket
            },
          },
          loads,
        )
        t.pass(`${tally(led.meanwhile)}, served again ${Math.round(led.resumedMs)} ms after that`)
      },
    )

    const { resumedMs, meanwhile } = await under(
      {
        id: 'F-09',
        what: 'failover',
        stopsAll: true,
        begin: () => stage.database.server.stop('immediate'),
        end: async () => {
          await standby.promote()
          stage.ledgerUrl = standby.url
          for (const { link } of stage.replicas) link.target = standby.socket
        },
      },
      loads,
    )
    t.comment(`${tally(meanwhile)}, served again ${Math.round(resumedMs)} ms after the promotion`)
    await Promise.all(loads.map((way) => way.stop()))
    t.same(await openCalls(stage, 10_000), [])
    t.same(
      await broken(
        stage,
        loads.flatMap(({ made }) => made),
      ),
      [],
    )
    const { rows } = await stage.ledger('select pg_is_in_recovery() as standing_by')
    t.same(rows, [{ standing_by: false }], 'it is the standby that was asked')
  },
)
