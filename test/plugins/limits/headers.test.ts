import t from 'tap'
import type { CallLimit } from '../../../db/limits/limit.ts'
import { rateLimitHeaders } from '../../../plugins/limits/headers.ts'

const AT = Date.UTC(2026, 1, 27, 23, 59, 30)
const DAY: CallLimit = {
  ...{ id: 'lim_a', name: 'a', revision: 1, override: null, for: {}, each: false },
  ...{ measure: 'calls', amount: 10, per: 'day', strict: false, on: 'refuse', show: true },
}

t.test('limits of calls are stated as structured fields, with the rest and the time', (t) => {
  const stated = (limit: Partial<CallLimit>, used: number) => {
    const headers = rateLimitHeaders([{ limit: { ...DAY, ...limit }, used }], AT)
    return [headers['ratelimit-policy'], headers.ratelimit]
  }
  t.same(stated({}, 4), ['"a";q=10;w=86400', '"a";r=6;t=30'])
  t.same(stated({ per: 'month' }, 12), ['"a";q=10;w=2419200', '"a";r=0;t=86430'], 'February is short')
  t.same(stated({ per: 'ever' }, 4), ['"a";q=10', '"a";r=6'])
  t.same(stated({ per: 'minute', amount: 60, burst: 90 }, 30), ['"a";q=90;w=90', '"a";r=60;t=30'])
  const { per: _, ...atOnce } = { ...DAY, measure: 'concurrent' as const }
  t.match(rateLimitHeaders([{ limit: atOnce, used: 3 }], AT), {
    'ratelimit-policy': '"a";q=10;qu="concurrent-requests"',
    ratelimit: '"a";r=7',
  })
  t.same(stated({ amount: 1e15, per: 'ever' }, 0), ['"a";q=999999999999999', '"a";r=999999999999999'])
  const until = new Date(AT + 1_000).toISOString()
  t.same(stated({ override: { amount: 20, until, reason: 'x' } }, 4), ['"a";q=20;w=86400', '"a";r=16;t=30'])
  t.end()
})

t.test('what is hidden, only alerts or is not known before its end is not stated', (t) => {
  const others: readonly Partial<CallLimit>[] = [
    { show: false },
    { on: 'alert' },
    { measure: 'cost' },
    { measure: 'tokens' },
  ]
  for (const limit of others) t.same(rateLimitHeaders([{ limit: { ...DAY, ...limit }, used: 1 }], AT), {})
  const both = [{ limit: DAY, used: 1 }].concat({ limit: { ...DAY, name: 'b' }, used: 2 })
  t.equal(rateLimitHeaders(both, AT).ratelimit, '"a";r=9;t=30, "b";r=8;t=30')
  t.end()
})
