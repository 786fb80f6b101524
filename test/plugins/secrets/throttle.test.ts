import t from 'tap'
import { FailureThrottle, senderOf } from '../../../plugins/secrets/throttle.ts'

await t.test(
  'docs/protocol.md#admin-throttle an address waits after ten failures in a minute, others do not',
  (t) => {
    let now = 1_000
    const throttle = new FailureThrottle(() => now)
    for (let i = 0; i < 9; i++) {
      now = 1_000 + i
      throttle.recordFailure('1.2.3.4')
    }
    now = 2_000
    t.equal(throttle.waitS('1.2.3.4'), 0)
    throttle.recordFailure('1.2.3.4')
    t.equal(throttle.waitS('1.2.3.4'), 59)
    t.equal(throttle.waitS('5.6.7.8'), 0)
    now = 61_000
    t.equal(throttle.waitS('1.2.3.4'), 0, 'a minute after the first')
    now = 61_001
    throttle.recordFailure('1.2.3.4')
    now = 61_002
    t.equal(throttle.waitS('1.2.3.4'), 0, 'and starts anew')
    t.end()
  },
)

await t.test('threat 7 a flood of addresses does not grow its memory without bound', (t) => {
  const throttle = new FailureThrottle(() => 1)
  const fails = (address: string): void => {
    for (let i = 0; i < 10; i++) throttle.recordFailure(address)
  }
  fails('first')
  for (let i = 0; i < 10_000; i++) fails(`address-${i}`)
  t.equal(throttle.waitS('first'), 0, 'the oldest is forgotten')
  t.equal(throttle.waitS('address-0'), 60)
  t.end()
})

await t.test('threat 7 a flood of single failures lets nobody in who has to wait', (t) => {
  let now = 0
  const throttle = new FailureThrottle(() => now)
  for (let i = 0; i < 10; i++) throttle.recordFailure('attacker')
  now = 1
  for (let i = 0; i < 20_000; i++) throttle.recordFailure(`address-${i}`)
  t.equal(throttle.waitS('attacker'), 60)
  now = 30_000
  throttle.recordFailure('attacker')
  t.equal(throttle.waitS('attacker'), 30, 'a guess that was under way changes nothing')
  t.end()
})

await t.test('D2 whoever has one IPv6 address has the 2^64 beside it, and counts as one', (t) => {
  const sender = senderOf('2001:db8:0:1::1')
  for (const same of ['2001:DB8:0:1:ffff:ffff:ffff:ffff', '2001:0db8:0000:0001::', '2001:db8::1:0:0:0:7']) {
    t.equal(senderOf(same), sender, same)
  }
  for (const other of ['2001:db8:0:2::1', '2001:db8::1', '::1', '2001:db8:0:1', '']) {
    t.not(senderOf(other), sender, other)
  }
  t.equal(senderOf('fe80::1%eth0'), senderOf('fe80::2'))
  t.equal(senderOf('64:ff9b::192.0.2.1'), senderOf('64:ff9b::1'))
  t.equal(senderOf('192.0.2.1'), '192.0.2.1')
  t.equal(senderOf('::ffff:192.0.2.1'), '192.0.2.1', 'the same sender, whatever the socket is')
  t.not(senderOf('::ffff:192.0.2.2'), senderOf('::ffff:192.0.2.1'))
  t.end()
})
