import t from 'tap'
import type { AdminCall } from '../../../scripts/admin/call.ts'
import { amountIn, verb } from '../../../scripts/verbs/limits.ts'
import { sharedGateway } from '../../support/gateway.ts'

t.test(
  'an amount of cost is read as USD without a floating point, and anything else as a whole number',
  async (t) => {
    t.equal(amountIn('cost', '25'), 25_000_000)
    t.equal(amountIn('cost', '0.1'), 100_000)
    t.equal(amountIn('cost', '1.000001'), 1_000_001)
    t.equal(amountIn('tokens', '1000'), 1_000)
    for (const text of ['', '-1', '1e3', '1.0000001', '1,5', '25 USD'])
      t.throws(() => amountIn('cost', text), /an amount of cost is in USD/, text)
    t.throws(() => amountIn('calls', '1.5'), /a whole number/)
  },
)

t.test('sallyport limits makes, shows, changes, overrides and removes limits of a gateway', async (t) => {
  const gateway = await sharedGateway(t)
  const call: AdminCall = async (method, path, body) => {
    const { status, json } = await gateway.admin(method, path, body)
    return { status, body: json }
  }
  const ran = async (...args: readonly string[]) => {
    const out: string[] = []
    await verb.perform(
      args,
      (_door, work) => work(call),
      (text) => out.push(text),
    )
    return out.join('')
  }
  t.match(await ran('list'), 'there are no limits')
  const made = await ran(
    'add',
    'red-month',
    '--holding',
    'team.red',
    '--measure',
    'cost',
    '--amount',
    '25',
    '--per',
    'month',
  )
  t.match(made, 'red-month: 25.00 USD per month, for holding=team.red')
  const other = ['add', 'other', '--measure', 'calls', '--amount', '1', '--per', 'ever', '--rehearse']
  t.match(
    await ran(...other),
    /^other: in the last 30 days this would have refused none of 0 calls\nnothing is changed; rehearsal reh_/,
  )
  t.notMatch(await ran('list'), 'other', 'a rehearsal makes none')
  t.match(await ran('set', 'red-month', '--amount', '50', '--rehearse'), /^red-month: in the last 30 days/)
  t.match(await ran('remove', 'red-month', '--rehearse'), 'nothing is changed')
  t.match(await ran('list'), /red-month +25\.00 USD per month +holding=team\.red/)
  t.match(await ran('set', 'red-month', '--amount', '50'), 'red-month: 50.00 USD per month')
  const until = new Date(Date.now() + 60_000).toISOString()
  const overridden = await ran(
    'override',
    'red-month',
    '--amount',
    '60',
    '--until',
    until,
    '--reason',
    'the release',
  )
  t.match(overridden, `60.00 USD until ${until}`)
  await t.rejects(ran('override', 'red-month', '--end', '--amount', '1'), /give --end alone/)
  t.notMatch(await ran('override', 'red-month', '--end'), 'until')
  await t.rejects(ran('override', 'red-month', '--end'), /The limit red-month has no override/)
  t.match(await ran('usage', 'red-month'), /it begins again on \d{4}-\d\d-01T00:00:00\.000Z/)
  await t.rejects(ran('remove', 'blue-month'), /there is no limit blue-month; there are red-month/)
  await t.rejects(ran('add', 'x', '--measure', 'cost', '--amount', 'much'), /an amount of cost is in USD/)
  await t.rejects(ran('add', 'x', '--measure', 'cost', '--amount', '1'), /per/)
  t.match(await ran('remove', 'red-month'), 'red-month is removed')
  t.match(await ran('list'), 'there are no limits')
})
