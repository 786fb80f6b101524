import { text } from 'node:stream/consumers'
import t from 'tap'
import { ActivityFollowers } from '../../../proxy/dashboard/activity/followers.ts'
import { eventually } from '../../support/settled.ts'

const TOO_MANY = { message: 'Too many pages already follow the ledger. Close one of them.' } as Error
const log = { error: () => {} }

/** A ledger whose end somebody moves, and that counts who looks at it. */
function ledger() {
  const state = { last: 1, looks: 0 }
  const followers = new ActivityFollowers({
    last: () => {
      state.looks += 1
      return Promise.resolve(state.last)
    },
    log,
  })
  return { state, followers }
}

t.test(
  'all who follow are told of new rows by one look, and nobody looks while nobody follows',
  async (t) => {
    const { state, followers } = ledger()
    const streams = ['alice', 'alice', 'bob', 'carol'].map((name) => followers.open(name))
    const texts = streams.map((stream) => text(stream))
    await eventually(
      () => state.looks,
      (looks) => looks >= 2,
    )
    const [before, since] = [state.looks, performance.now()]
    state.last = 2
    await eventually(
      () => state.looks,
      (looks) => looks >= before + 3,
    )
    const spent = performance.now() - since
    t.ok(state.looks - before <= spent / 500 + 2, 'one look for all four')
    for (const stream of streams.slice(1)) stream.push(null)
    for (const all of texts.slice(1)) t.match(await all, /^retry: 2000\n\nevent: rows\ndata: 2\n\n$/)
    const [first] = streams
    first?.destroy()
    await t.rejects(Promise.all(texts.slice(0, 1)).then(() => {}))
    await eventually(
      () => followers.size,
      (size) => size === 0,
    )
    const after = state.looks
    await eventually(
      () => state.looks,
      (looks) => looks > after,
      1_200,
    )
    t.equal(state.looks, after, 'nobody looks any more')
  },
)

t.test(
  'one operator follows on four pages, all of them on 64, and a place that is left is free again',
  async (t) => {
    const { followers } = ledger()
    const own = Array.from({ length: 4 }, () => followers.open('alice'))
    t.throws(() => followers.open('alice'), TOO_MANY)
    for (let n = 0; n < 60; n += 1) followers.open(`operator-${n}`)
    t.throws(() => followers.open('bob'), TOO_MANY)
    own[0]?.destroy()
    await eventually(
      () => followers.size,
      (size) => size === 63,
    )
    t.ok(followers.open('alice'))
    followers.close()
    t.throws(() => followers.open('bob'), TOO_MANY, 'nor behind the end')
  },
)

t.test('a browser that does not read is let go, and the others are told', async (t) => {
  const { state, followers } = ledger()
  const [slow, quick] = [followers.open('slow'), followers.open('quick')]
  let read = 0
  quick.on('data', (chunk: Buffer) => {
    read += chunk.length
  })
  // Each event is as long as a place has digits.
  const long = 10 ** 15
  await eventually(
    () => {
      state.last = long + state.looks
      // Whoever comes is told at once, and so are all others: nobody waits for thirty looks.
      followers.open('passer-by').destroy()
      return slow.destroyed
    },
    (destroyed) => destroyed,
    30_000,
  )
  t.equal(slow.destroyed, true)
  t.ok(slow.readableLength <= 1_100, 'no more than that waited for it')
  t.equal(quick.destroyed, false)
  t.ok(read > 1_000)
  followers.close()
})
