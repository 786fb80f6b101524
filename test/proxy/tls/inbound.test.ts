import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { InboundStream, LoopScheduler, type LoopWork, SenderCost } from '../../../proxy/tls/inbound.ts'

/** A loop whose clock goes on only by what is done, and by `idle`. */
function stage() {
  let now = 1_000
  let busy = 0
  const turns = new LoopScheduler(
    () => now,
    (later, earlier) => {
      const active = busy - (earlier?.active ?? 0)
      const idle = now - 1_000 - busy - (earlier?.idle ?? 0)
      return later && !earlier ? later : { active, idle, utilization: active / (active + idle) }
    },
  )
  const done: string[] = []
  const work = (name: string, pieces: number, ms: number, more: Partial<LoopWork> = {}): LoopWork => {
    let left = pieces
    return {
      sender: new SenderCost(),
      isHandshake: false,
      turn: () => {
        now += ms
        busy += ms
        left -= 1
        done.push(name)
        return left > 0
      },
      ...more,
    }
  }
  return {
    turns,
    work,
    done,
    count: (name: string) => done.filter((each) => each === name).length,
    idle: (ms: number) => {
      now += ms
    },
    now: () => now,
  }
}

await t.test('A3: while there is time, what comes is done at once', async (t) => {
  const { turns, work, done } = stage()
  turns.offer(work('a', 1, 1))
  turns.offer(work('b', 1, 1))
  t.same(done, ['a', 'b'])
})

await t.test(
  'A3: who has cost much comes after those who have cost little, and is served all the same',
  async (t) => {
    const { turns, work, done, count } = stage()
    turns.offer(work('heavy', 100, 12))
    t.same(done, ['heavy'], 'one piece')
    for (let i = 0; i < 5; i += 1) turns.offer(work(`light ${i}`, 1, 0.5))
    await nextTurn()
    await nextTurn()
    const lights = done.findLastIndex((name) => name.startsWith('light'))
    t.equal(
      done.slice(0, lights).filter((name) => name === 'heavy').length,
      1,
      'no further piece before them',
    )
    for (let i = 0; i < 10; i += 1) {
      for (let j = 0; j < 50; j += 1) turns.offer(work('flood', 1, 1))
      await nextTurn()
    }
    t.ok(count('heavy') >= 8, 'one in each turn, though others never end')
  },
)

await t.test('A1: handshakes get what everything else leaves, and a tenth at least', async (t) => {
  const { turns, work, count, now } = stage()
  const address = new SenderCost()
  for (let i = 0; i < 2_000; i += 1) {
    turns.offer(work('handshake', 1, 1, { isHandshake: true, sender: address }))
  }
  // Callers who take the whole loop: each piece is followed by another.
  for (let i = 0; i < 64; i += 1) turns.offer(work('call', 100_000, 0.5))
  const from = { at: now(), handshakes: count('handshake') }
  while (now() - from.at < 5_000) await nextTurn()
  const share = (count('handshake') - from.handshakes) / (now() - from.at)
  t.ok(share > 0.05 && share < 0.15, `${Math.round(share * 100)} % of the time`)
})

await t.test('A1: an address that has cost little shakes hands before those that keep coming', async (t) => {
  const { turns, work, done } = stage()
  const flood = new SenderCost()
  for (let i = 0; i < 500; i += 1) {
    turns.offer(work('flood', 1, 2, { isHandshake: true, sender: flood }))
  }
  const before = done.length
  turns.offer(work('honest', 1, 2, { isHandshake: true }))
  for (let i = 0; i < 4; i += 1) await nextTurn()
  t.ok(done.slice(before, before + 6).includes('honest'), 'once the flood has cost as much as anyone may')
})

await t.test(
  'A1: every fourth handshake is of a crowd that has cost much, however many others come',
  async (t) => {
    const { turns, work, done, count, idle } = stage()
    const crowd = new SenderCost()
    crowd.charge(100_000, 1_000)
    const shaking = (name: string, sender?: SenderCost): void =>
      turns.offer(work(name, 1, 1, { isHandshake: true, ...(sender && { sender }) }))
    for (let i = 0; i < 200; i += 1) {
      shaking('crowd', crowd)
      shaking('light')
    }
    while (done.length < 100) await nextTurn()
    const [crowds, all] = [count('crowd'), done.length]
    for (; done.length < 400; idle(1_000)) await nextTurn()
    t.ok(crowds >= all / 5 && crowds <= all / 3, `${crowds} of ${all}`)
  },
)

await t.test('A1: accepting and shaking hands both go on, whatever there is more of', async (t) => {
  const { turns, work, count, idle, now } = stage()
  for (let i = 0; i < 1_000; i += 1) turns.offer(work('handshake', 1, 1, { isHandshake: true }))
  let accepted = 0
  const from = { at: now(), shaken: count('handshake') }
  // Connections that never end: each turn of the loop accepts one, in a tenth of a millisecond.
  while (now() - from.at < 1_000) {
    turns.accepted()
    accepted += 1
    idle(0.1)
    await nextTurn()
  }
  const shaken = count('handshake') - from.shaken
  t.ok(shaken >= 400, `${shaken} ms of a second for handshakes`)
  t.ok(accepted >= 3_000, `and ${accepted} accepted`)
  while (count('handshake') < 1_000) {
    idle(1_000)
    await nextTurn()
  }
})

await t.test('A1: connections are accepted though the machine gives the loop little time', async (t) => {
  const { turns, work, count, idle } = stage()
  for (let i = 0; i < 100; i += 1) turns.offer(work('handshake', 1, 1, { isHandshake: true }))
  const before = count('handshake')
  for (let i = 0; i < 80; i += 1) {
    turns.accepted()
    // Of each turn most goes to others.
    idle(30)
    await nextTurn()
  }
  const shaken = count('handshake') - before
  t.ok(shaken >= 8 && shaken <= 48, `${shaken} handshakes beside 80 that were accepted`)
  while (count('handshake') < 100) {
    idle(1_000)
    await nextTurn()
  }
})

await t.test('A1: callers do not wait where handshakes must', async (t) => {
  const { turns, work, count, done, idle } = stage()
  turns.offer(work('busy', 4_000, 0.5))
  // Beside callers who took the whole loop, these have taken what there was for them, and more.
  for (let i = 0; i < 20; i += 1) turns.offer(work('handshake', 1, 40, { isHandshake: true }))
  while (count('busy') < 4_000) await nextTurn()
  await nextTurn()
  const shaken = count('handshake')
  const before = done.length
  turns.offer(work('call', 2, 6))
  turns.offer(work('another', 1, 1))
  await nextTurn()
  await nextTurn()
  t.same(
    done
      .slice(before)
      .filter((name) => name !== 'handshake')
      .toSorted(),
    ['another', 'call', 'call'],
  )
  t.ok(shaken < 20, 'some of them wait for a timer')
  idle(60_000)
  while (count('handshake') < 20) await nextTurn()
})

await t.test('A3: what a peer has sent before it closed comes whole, however long it waits', async (t) => {
  const sent = Buffer.from(Array.from({ length: 300_000 }, (_, i) => i % 251))
  const server = createServer((socket) => socket.end(sent)).listen(0, '127.0.0.1')
  t.teardown(() => server.close())
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const inbound = new InboundStream(connect(port, '127.0.0.1'), new LoopScheduler(), new SenderCost())
  const received: Buffer[] = []
  inbound.on('data', (piece: Buffer) => {
    received.push(piece)
    // Dear enough to be handed on in the smallest pieces.
    for (const until = performance.now() + 3; performance.now() < until; );
  })
  await once(inbound, 'close')
  t.ok(Buffer.concat(received).equals(sent))
  t.ok(received.length > 30, `in ${received.length} pieces`)
})
