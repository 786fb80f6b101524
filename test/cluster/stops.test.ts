import t from 'tap'
import { randomOf } from '../siege/attacks/target.ts'
import { clusterStage } from '../support/cluster/stage.ts'
import { judgedLedger } from '../support/cluster/stops/proof.ts'
import { stopStorm } from '../support/cluster/stops/storm.ts'
import { skipWithoutHaproxy } from '../support/haproxy.ts'
import { eventually } from '../support/settled.ts'

const SEED = 39
const STOPS = 20
const LONGEST_MS = 120_000

// `make stops-proof` is the same for ten minutes, with 200 callers.
t.test(
  'no call is allowed behind a stop of its scope, and each that was under way is cut: by the ledger alone',
  { skip: skipWithoutHaproxy },
  async (t) => {
    const stage = await clusterStage(t)
    const storm = await stopStorm(stage, { callers: 40, perSecond: 60, random: randomOf(SEED) })
    await eventually(
      async () => storm.begun(),
      (begun) => begun >= STOPS,
      LONGEST_MS,
    )
    await storm.stop()
    const { judged, findings } = await judgedLedger(stage)
    t.same(judged.violations, [])
    t.same(findings, [], 'and the verifier says the same')
    t.ok(judged.begun >= STOPS, `${judged.begun} stops`)
    t.ok(judged.refused > 0 && judged.allowed > 0, `${judged.allowed} allowed, ${judged.refused} stopped`)
    t.ok(judged.cuts.length > 0, `${judged.cuts.length} calls were cut under way`)
    t.same(stage.replicas.map(({ ended }) => ended()).filter(Boolean), [], 'each gateway runs')
  },
)
