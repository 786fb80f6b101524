import t from 'tap'
import { Refusal } from '../../../../plugins/refusal.ts'
import { CallHangup } from '../../../../proxy/http/open-calls.ts'
import { type RetryRule, retryDelay, waitUnlessGone } from '../../../../proxy/llm/health/retry.ts'

const RULE: RetryRule = {
  attempts: 3,
  on: ['connect', 429, 500, 502, 503, 529],
  backoff_ms: 250,
  most_ms: 5_000,
}
const NOW = Date.UTC(2026, 10, 27, 8)
const delay = (
  failed: Partial<Parameters<typeof retryDelay>[1]>,
  random = 1,
  rule: RetryRule | undefined = RULE,
) =>
  retryDelay(rule, { cause: 503, headers: {}, asked: 1, ...failed }, { now: () => NOW, random: () => random })

await t.test('the same provider is asked again for what its rule names, and for nothing else', (t) => {
  for (const cause of RULE.on) t.type(delay({ cause }), 'number', String(cause))
  for (const cause of ['reset', 400, 401, 409, 504] as const) t.equal(delay({ cause }), null, String(cause))
  t.equal(delay({}, 1, { ...RULE, attempts: 1 }), null)
  t.equal(
    retryDelay(undefined, { cause: 503, headers: {}, asked: 1 }, { now: () => NOW, random: () => 1 }),
    null,
  )
  t.end()
})

await t.test('a request that timed out is never sent again to the same provider', (t) => {
  t.equal(delay({ cause: 'timeout' }, 1, { ...RULE, on: ['timeout'] }), null)
  t.end()
})

await t.test('the wait doubles, is drawn from its upper half, and never passes the most', (t) => {
  t.equal(delay({ asked: 1 }), 250)
  t.equal(delay({ asked: 1 }, 0), 125)
  t.equal(delay({ asked: 2 }), 500)
  t.equal(delay({ asked: 3 }), null, 'and it is asked no fourth time')
  t.equal(delay({ asked: 9 }, 1, { ...RULE, attempts: 10 }), 5_000)
  t.end()
})

await t.test('a retry-after is obeyed in each of its forms, and one beyond the most ends it', (t) => {
  for (const [headers, ms] of [
    [{ 'retry-after': '2' }, 2_000],
    [{ 'retry-after': '0' }, 0],
    [{ 'retry-after': '0.5' }, 500],
    [{ 'retry-after': '60' }, null],
    [{ 'retry-after-ms': '40', 'retry-after': '60' }, 40],
    [{ 'retry-after': 'Fri, 27 Nov 2026 08:00:03 GMT' }, 3_000],
    [{ 'retry-after': 'Fri, 27 Nov 2026 07:00:00 GMT' }, 0],
    [{ 'retry-after': 'Fri, 27 Nov 2026 09:00:00 GMT' }, null],
    [{ 'retry-after': 'soon' }, 250],
    [{ 'retry-after': '-1' }, 250],
    [{ 'x-should-retry': 'false' }, null],
  ] as const)
    t.equal(delay({ headers }), ms, JSON.stringify(headers))
  t.end()
})

await t.test('a wait ends when it is over, or at once when its caller hangs up', async (t) => {
  await waitUnlessGone(1, new CallHangup())
  const hangup = new CallHangup()
  const waiting = waitUnlessGone(3_600_000, hangup)
  hangup.hangUp()
  await t.rejects(waiting, new Refusal('client_gone'))
  await t.rejects(waitUnlessGone(3_600_000, hangup), new Refusal('client_gone'))
})
