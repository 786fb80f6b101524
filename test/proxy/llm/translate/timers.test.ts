import t from 'tap'
import {
  type AnswerClock,
  AnswerTimers,
  MAX_LAST_WAIT_MS,
  MAX_SILENCE_MS,
} from '../../../../proxy/llm/translate/timers.ts'

/** A clock that stands still until it is turned, and counts what was asked of it. */
function standingClock() {
  let now = 0
  let asked = 0
  const waiting = new Map<number, { readonly at: number; readonly call: () => void }>()
  const clock: AnswerClock = {
    now: () => now,
    after: (ms, call) => {
      asked += 1
      const id = asked
      waiting.set(id, { at: now + ms, call })
      return () => waiting.delete(id)
    },
  }
  const turn = (ms: number): void => {
    const until = now + ms
    for (;;) {
      const [next] = [...waiting]
        .filter(([, { at }]) => at <= until)
        .toSorted(([, one], [, two]) => one.at - two.at)
      if (!next) break
      waiting.delete(next[0])
      now = next[1].at
      next[1].call()
    }
    now = until
  }
  return { clock, turn, count: () => asked, left: () => waiting.size }
}

const timed = () => {
  const { clock, ...given } = standingClock()
  const done: string[] = []
  const timers = new AnswerTimers({ ping: () => done.push('ping'), end: () => done.push('end') }, clock)
  return { ...given, done, timers }
}

await t.test('§ a caller who hears nothing for 15 s is sent a sign of life, again and again', async (t) => {
  const { done, turn } = timed()
  turn(MAX_SILENCE_MS - 1)
  t.same(done, [])
  turn(1)
  t.same(done, ['ping'])
  turn(MAX_SILENCE_MS)
  t.same(done, ['ping', 'ping'])
})

await t.test('§ what is written puts the next one off, and begins no timer', async (t) => {
  const { done, turn, count, timers } = timed()
  turn(MAX_SILENCE_MS - 1_000)
  for (let n = 0; n < 1_000; n += 1) timers.wrote()
  t.equal(count(), 1)
  turn(MAX_SILENCE_MS - 1)
  t.same(done, [])
  turn(1)
  t.same(done, ['ping'])
})

await t.test('§ an answer that can end does so within 2 s, once', async (t) => {
  const { done, turn, left, timers } = timed()
  timers.endSoon()
  turn(MAX_LAST_WAIT_MS - 1)
  timers.endSoon()
  t.same(done, [])
  turn(1)
  t.same(done, ['end'])
  turn(MAX_LAST_WAIT_MS)
  t.same(done, ['end'])
  timers.stop()
  t.equal(left(), 0)
})

await t.test('§ nothing is done after the end', async (t) => {
  const { done, turn, left, timers } = timed()
  timers.endSoon()
  timers.stop()
  t.equal(left(), 0)
  turn(10 * MAX_SILENCE_MS)
  t.same(done, [])
})
