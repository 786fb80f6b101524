import t from 'tap'
import { RefusalSummaries, type RepeatedRefusal, summaryEntry } from '../../../plugins/audit/summaries.ts'
import { writeSummaries } from '../../../proxy/tasks/tend-ledger.ts'
import type { Json } from '../../support/gateway.ts'

const MINUTE_MS = 60_000

const refusal = (id: string, reason: string, configDigest = 'one'): RepeatedRefusal => ({
  principal: { ref: id, type: 'agent' },
  action: 'mcp_tools_call',
  reason,
  status: 'denied',
  authority: { demanded: [] },
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
  t.equal(counting.drainDue(1).length, 0, 'the minute is not over')
  passed += MINUTE_MS
  const some = counting.drainDue(128)
  t.equal(some.length, 128, 'no more at once than are asked for')
  counting.requeue(some)
  const ended = counting.drainDue(KINDS).map(summaryEntry)
  t.equal(ended.length, 10_001)
  const common = ended.at(-1)
  t.match(common, {
    action: 'mcp_tools_call',
    principal_id: null,
    principal_type: null,
    detail: { reason: 'capability_missing', summarised: { count: 2 * (KINDS - 10_000) } },
  })
  t.notOk(common?.detail.required_capability, 'those it stands for have several')
})

await t.test('D3: what waits for the ledger does not grow', async (t) => {
  let passed = 0
  const counting = new RefusalSummaries(() => passed)
  const minute = (): void => {
    for (let n = 0; n < 6_000; n += 1) counting.count(refusal(`agent-${n}`, 'capability_missing'))
    passed += MINUTE_MS
  }
  for (let minutes = 0; minutes < 5; minutes += 1) minute()
  const ended = counting.drainDue(100_000)
  t.ok(ended.length <= 16_000, `${ended.length} rows`)
  t.equal(
    ended.reduce((sum, { count }) => sum + count, 0),
    5 * 6_000,
  )
})

await t.test(
  'D3: a summary names the one configuration that judged, and is kept when it fails',
  async (t) => {
    const counting = new RefusalSummaries(() => 0)
    for (const digest of ['one', 'one', 'two']) counting.count(refusal('agent', 'policy_denied', digest))
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
    await t.rejects(writeSummaries({ ledger, summaries: counting }, true), /full/)
    failing = false
    await writeSummaries({ ledger, summaries: counting })
    await writeSummaries({ ledger, summaries: counting }, true)
    t.strictSame(written, [
      ['one', 2],
      ['two', 1],
    ])
  },
)
