import t from 'tap'
import { RefusalSummaries, type RepeatedRefusal, summaryEntry } from '../../../plugins/audit/summaries.ts'
import { writeSummaries } from '../../../proxy/tasks/record-summaries.ts'
import type { Json } from '../../support/gateway.ts'

const MINUTE_MS = 60_000

const refusal = (id: string, reason: string, configDigest = 'one'): RepeatedRefusal => ({
  principal: { id, type: 'agent' },
  action: 'mcp_tools_call',
  reason,
  refusedBy: 'capability',
  requiredCapability: id,
  requestId: 'req_1',
  at: 0,
  bodySha256: null,
  configDigest,
})

await t.test('D3: what is remembered of kinds is bounded, and nothing is lost from the count', async (t) => {
  let passed = 0
  const counting = new RefusalSummaries(() => passed)
  const KINDS = 12_000
  for (let n = 0; n < KINDS; n += 1) {
    const one = refusal(`agent-${n}`, 'capability_missing')
    // Beyond the bound none has a row of its own.
    const times = counting.takeRow(one) ? 1 : 2
    for (let time = 0; time < times; time += 1) counting.count(one)
  }
  passed += MINUTE_MS
  counting.close()
  const ended = counting.take(KINDS)
  t.equal(ended.length, 10_000)
  counting.close()
  const [common, ...more] = counting.take(KINDS).map(summaryEntry)
  t.equal(more.length, 0)
  t.match(common, {
    action: 'mcp_tools_call',
    principal_id: null,
    principal_type: null,
    detail: { reason: 'capability_missing', summarised: { count: 2 * (KINDS - 10_000) } },
  })
  t.notOk(common?.detail.required_capability, 'those it stands for have several')
  counting.giveBack(ended)
  counting.count(refusal('agent-0', 'capability_missing'))
  passed += MINUTE_MS
  counting.close()
  t.equal(counting.take(KINDS).length, 10_000, 'no more are ended while so many wait')
  counting.close()
  t.equal(counting.take(KINDS).length, 1)
})

await t.test(
  'D3: a summary names the one configuration that judged, and is kept when it fails',
  async (t) => {
    const counting = new RefusalSummaries(() => 0)
    for (const digest of ['one', 'one', 'two']) counting.count(refusal('agent', 'policy_denied', digest))
    counting.close(true)
    const written: unknown[] = []
    let failing = true
    const ledger = {
      failing: false,
      commit: ({ entries }: { entries: readonly Json[] }) => {
        if (failing) return Promise.reject(new Error('full'))
        written.push(...entries.map(({ config_digest, detail }) => [config_digest, detail.summarised.count]))
        return Promise.resolve([])
      },
    }
    await t.rejects(writeSummaries({ ledger, summaries: counting }), /full/)
    failing = false
    await writeSummaries({ ledger, summaries: counting })
    await writeSummaries({ ledger, summaries: counting })
    t.strictSame(written, [
      ['one', 2],
      ['two', 1],
    ])
  },
)
