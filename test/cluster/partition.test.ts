import t from 'tap'
import { heldCall } from '../support/cluster/held-call.ts'
import { load, type Made } from '../support/cluster/load.ts'
import { broken, openCalls } from '../support/cluster/oracle.ts'
import { clusterStage } from '../support/cluster/stage.ts'
import { skipWithoutHaproxy } from '../support/haproxy.ts'
import { eventually } from '../support/settled.ts'

/** Until the others have closed its calls. */
const PATIENCE_MS = 60_000

t.test(
  'F-11 a replica that is without its database until the others take it for dead, and comes back, gives no call two outcomes',
  { skip: skipWithoutHaproxy },
  async (t) => {
    const stage = await clusterStage(t)
    const bot = await stage.enroll('bot')
    const [alone] = stage.replicas
    if (!alone) throw new Error('there are three')
    const calls = load(stage, bot, { url: alone.url, callers: 4, pauseMs: 50 })
    await calls.until((made) => made.length >= 20)
    const held = await Promise.all([1, 2].map(() => heldCall(t, stage, bot, 'open', alone)))
    alone.link.open = false
    alone.link.cut('reset')
    // One ends while its outcome cannot be written, the other when it can be again.
    held[0]?.hangUp()
    const models = held.map(({ model }) => model)
    const closed = async () => (await stage.ledger(CLOSED, [models])).rows.length
    t.equal(await eventually(closed, (count) => count === 2, PATIENCE_MS), 2, 'the others have closed both')
    alone.link.open = true
    const from = calls.made.length
    await calls.until((made) => made.slice(from).some(({ status }) => status === 200))
    held[1]?.hangUp()
    const last = () => stage.provider.reached.find(({ model }) => model === models[1])?.closedAt ?? null
    const hungUpAt = await eventually(last, (at) => at !== null)
    // Outcomes go with the decisions behind them.
    const behind = ({ status, sentAt }: Made) => status === 200 && sentAt > (hungUpAt ?? 0)
    await calls.until((made) => made.filter(behind).length >= 10)
    await calls.stop()
    t.same(await openCalls(stage, 10_000), [])
    t.same(await broken(stage, calls.made), [])
  },
)

const CLOSED = `select 1 from audit_log d join audit_log o on o.request_id = d.request_id and o.status = 'unknown'
  where d.status = 'allowed' and d.model = any($1)`
