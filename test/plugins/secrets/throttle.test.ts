import t from 'tap'
import { Throttle } from '../../../plugins/secrets/throttle.ts'

await t.test(
  'docs/protocol.md#admin-throttle an address waits after ten failures in a minute, others do not',
  (t) => {
    const throttle = new Throttle()
    for (let i = 0; i < 9; i++) throttle.failed('1.2.3.4', 1_000 + i)
    t.equal(throttle.waitS('1.2.3.4', 2_000), 0)
    throttle.failed('1.2.3.4', 2_000)
    t.equal(throttle.waitS('1.2.3.4', 2_000), 59)
    t.equal(throttle.waitS('5.6.7.8', 2_000), 0)
    t.equal(throttle.waitS('1.2.3.4', 61_000), 0, 'a minute after the first')
    throttle.failed('1.2.3.4', 61_001)
    t.equal(throttle.waitS('1.2.3.4', 61_002), 0, 'and starts anew')
    t.end()
  },
)

await t.test('threat 7 a flood of addresses does not grow its memory without bound', (t) => {
  const throttle = new Throttle()
  const fails = (address: string): void => {
    for (let i = 0; i < 10; i++) throttle.failed(address, 1)
  }
  fails('first')
  for (let i = 0; i < 10_000; i++) fails(`address-${i}`)
  t.equal(throttle.waitS('first', 1), 0, 'the oldest is forgotten')
  t.equal(throttle.waitS('address-0', 1), 60)
  t.end()
})

await t.test('threat 7 a flood of single failures lets nobody in who has to wait', (t) => {
  const throttle = new Throttle()
  for (let i = 0; i < 10; i++) throttle.failed('attacker', 0)
  for (let i = 0; i < 20_000; i++) throttle.failed(`address-${i}`, 1)
  t.equal(throttle.waitS('attacker', 1), 60)
  throttle.failed('attacker', 30_000)
  t.equal(throttle.waitS('attacker', 30_000), 30, 'a guess that was under way changes nothing')
  t.end()
})
