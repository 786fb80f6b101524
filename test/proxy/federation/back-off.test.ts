import t from 'tap'
import { BackOff, retryDelayMs } from '../../../proxy/federation/publish.ts'

t.test('§3 the wait doubles with each failure, up to five minutes, half of it by chance', async (t) => {
  const waits = (random: number) =>
    [1, 2, 3, 8, 9, 10, 2000].map((failures) => retryDelayMs(failures, random))
  t.strictSame(waits(1), [2_000, 4_000, 8_000, 256_000, 300_000, 300_000, 300_000])
  t.strictSame(waits(0), [1_000, 2_000, 4_000, 128_000, 150_000, 150_000, 150_000])
})

t.test('§3 each agent waits for itself, and the longest waiting comes first', async (t) => {
  const backOff = new BackOff()
  t.strictSame(backOff.due(0), [])
  t.equal(backOff.holds('a', 1), false)
  const { failures, delayMs } = backOff.failed('a', 2, 0)
  t.equal(failures, 1)
  t.equal(backOff.failed('b', 1, 5_000).failures, 1)
  t.strictSame(backOff.due(delayMs - 1), [])
  t.strictSame(backOff.due(delayMs), ['a'])
  t.strictSame(backOff.due(7_000), ['a', 'b'])
  t.strictSame(
    [1, 2, 3].map((revision) => backOff.holds('a', revision)),
    [true, true, false],
  )
  t.equal(backOff.failed('a', 1, 7_000).failures, 2)
  t.equal(backOff.holds('a', 2), true, 'what has failed is remembered by its highest revision')
  t.strictSame(backOff.due(7_000), ['b'])
  backOff.settled('b')
  t.strictSame(backOff.due(7_000), [])
  t.equal(backOff.holds('b', 1), false)
})
