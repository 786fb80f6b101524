import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { ClientFlight } from '../../../proxy/tls/client-flight.ts'
import { HandshakePace, type PendingHandshake, PendingHandshakes } from '../../../proxy/tls/handshakes.ts'
import { InboundStream, LoopScheduler, SenderCost } from '../../../proxy/tls/inbound.ts'
import { eventually } from '../../support/settled.ts'

await t.test('A1: where too many shake hands, the newest of the largest crowd goes', async (t) => {
  const handshakes = new PendingHandshakes(5, 60_000)
  const ended: string[] = []
  const enter = (address: string, name: string) => {
    const end = (): void => void ended.push(name)
    const pending = handshakes.enter(address, new SenderCost(), { begin: () => {}, proceed: () => {}, end })
    return () => handshakes.over(pending)
  }
  const honest = enter('192.0.2.1', 'honest')
  for (let i = 0; i < 10; i += 1) enter('198.51.100.1', `flood ${i}`)
  t.equal(ended.length, 6)
  t.notOk(ended.includes('honest'))
  t.notOk(ended.includes('flood 0'), 'the oldest of them may still come to its end')
  enter('203.0.113.1', 'another')
  t.notOk(ended.includes('another'), 'a newcomer from elsewhere takes the place of one of the crowd')
  honest()
  honest()
  enter('203.0.113.2', 'one more')
  t.equal(ended.length, 7, 'a place that was left is free, and left once')
  handshakes.endAll()
  t.equal(ended.length, 12)
})

/** Handshakes that note what happens to them. `speaks`: their clients' bytes come as soon as they are read. */
function room({ limit = 10_000, silenceMs = 60_000, speaks = true } = {}) {
  const handshakes = new PendingHandshakes(limit, silenceMs)
  const begun: string[] = []
  const proceeded: string[] = []
  const ended: (readonly [string, string])[] = []
  const all = new Map<string, PendingHandshake>()
  const enter = (address: string, name = address, sender = new SenderCost()): void => {
    const steps = {
      begin: () => {
        begun.push(name)
        const pending = all.get(name)
        if (speaks && pending) handshakes.heard(pending)
      },
      proceed: () => void proceeded.push(name),
      end: (why: string) => void ended.push([name, why]),
    }
    all.set(name, handshakes.enter(address, sender, steps))
  }
  const over = (name: string): void => {
    const pending = all.get(name)
    if (pending) handshakes.over(pending)
  }
  const answered = (name: string): void => {
    const pending = all.get(name)
    if (pending) handshakes.answered(pending)
  }
  return { handshakes, begun, proceeded, ended, enter, over, answered }
}

async function turns(count: number): Promise<void> {
  for (let i = 0; i < count; i += 1) await nextTurn()
}

await t.test('A1: no more begin than are kept up with, and each that ends lets one begin', async (t) => {
  const { handshakes, begun, proceeded, ended, enter, over, answered } = room({ silenceMs: 20 })
  for (let i = 0; i < 3_000; i += 1) enter('192.0.2.1', `client ${i}`)
  await turns(20)
  const first = begun.length
  t.ok(first >= 16 && first <= 32, `${first} of 3,000`)
  t.same(proceeded, begun, 'what they have sent is looked at')
  over('client 0')
  answered('client 1')
  await turns(5)
  t.equal(begun.length, first + 2, 'one that is over, and one whose client has to speak')
  t.equal(begun.at(-1), `client ${first + 1}`, 'the oldest first')
  await eventually(
    () => ended.length,
    (count) => count > 0,
  )
  t.same(
    ended,
    [['client 1', 'handshake_timeout']],
    'who waits for us is not timed, and who is waited for is',
  )
  handshakes.endAll()
})

await t.test('A1: addresses take turns, those that have cost much in every fourth', async (t) => {
  const { handshakes, begun, enter, over } = room()
  const dear = new SenderCost()
  dear.charge(10_000, performance.now())
  for (let i = 0; i < 300; i += 1) enter('192.0.2.1', `crowd ${i}`, dear)
  for (let i = 0; i < 100; i += 1) enter(`198.51.100.${i}`)
  while (begun.length < 100) {
    await nextTurn()
    for (const name of begun) over(name)
  }
  const crowd = begun.slice(0, 100).filter((name) => name.startsWith('crowd')).length
  t.equal(crowd, 25, 'of a hundred that begin')
  enter('203.0.113.1', 'newcomer')
  const before = begun.length
  await turns(3)
  t.ok(begun.slice(before, before + 24).includes('newcomer'))
  handshakes.endAll()
})

await t.test('A1: no more are read than their clients keep up with, while they do', (t) => {
  const pace = new HandshakePace(0)
  const second = (from: number, count: number): number => {
    for (let i = 0; i < count; i += 1) pace.finish(from + (1_000 * i) / count)
    return pace.mostBegun(from + 1_000)
  }
  t.equal(pace.mostBegun(0), 256, 'not many, before it is known')
  t.ok(Math.abs(second(0, 400) - 400) < 10, 'as many as come to their end in a second')
  t.equal(second(1_000, 60), 128, 'and some always')
  t.equal(second(2_000, 10), Number.POSITIVE_INFINITY, 'who stalls all others finds the limit of before')
  t.equal(pace.mostBegun(60_000), 256, 'after a quiet time it is as at first')
  t.end()
})

await t.test(
  'A1: silent ones that fill the room make place for another address, and for no other',
  async (t) => {
    const { handshakes, begun, ended, enter } = room({ limit: 40, speaks: false })
    for (let i = 0; i < 30; i += 1) enter('192.0.2.1', `silent ${i}`)
    await turns(20)
    t.equal(begun.length, 20, 'half of all may be read')
    t.same(ended, [], 'the others of the same address wait')
    enter('198.51.100.1', 'honest')
    await turns(5)
    t.same(ended, [['silent 19', 'too_many_handshakes']])
    t.equal(begun.at(-1), 'honest')
    handshakes.endAll()
  },
)

await t.test(
  'A1: neither clients that have said nothing nor a crowd that has said a half keeps another address waiting',
  async (t) => {
    for (const speaks of [false, true]) {
      const { handshakes, begun, proceeded, ended, enter, answered } = room({ speaks })
      for (let i = 0; i < 400; i += 1) enter('192.0.2.1', `crowd ${i}`)
      for (let turn = 0; turn < 400; turn += 1) {
        await turns(1)
        for (const name of proceeded.splice(0)) answered(name)
      }
      t.equal(begun.length, speaks ? 256 : 400, 'as many as are kept up with; all of those that are silent')
      enter('198.51.100.1', 'honest')
      await turns(5)
      t.equal(begun.at(-1), 'honest')
      t.same(ended, [], 'and none goes for it')
      handshakes.endAll()
    }
  },
)

await t.test('A1: of many addresses with a few each none goes for another one', async (t) => {
  const { handshakes, begun, ended, enter } = room({ limit: 40, speaks: false })
  for (let i = 0; i < 30; i += 1) enter(`192.0.2.${i % 6}`, `client ${i}`)
  await turns(20)
  for (let i = 0; i < 5; i += 1) enter(`198.51.100.${i}`)
  await turns(20)
  t.equal(begun.length, 20)
  t.same(ended, [], 'all of them wait')
  handshakes.endAll()
})

await t.test('A1: a client that has gone while it waited costs no handshake', async (t) => {
  const server = createServer({ pauseOnConnect: true, allowHalfOpen: true }).listen(0, '127.0.0.1')
  t.teardown(() => server.close())
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const handshakes = new PendingHandshakes(10_000, 60_000)
  const scheduler = new LoopScheduler()
  let answered = 0
  const take = (ends: boolean): Promise<unknown> => {
    const client = connect(port, '127.0.0.1')
    client.on('error', () => {})
    client.write('hello')
    if (ends) client.end()
    t.teardown(() => client.destroy())
    return once(server, 'connection').then(async ([socket]) => {
      await once(client, ends ? 'finish' : 'connect')
      let inbound: InboundStream | null = null
      const over = Promise.withResolvers<void>()
      const steps = {
        flight: new ClientFlight(() => null),
        begin: () => {
          answered += 1
          over.resolve()
          return false
        },
        heard: () => handshakes.heard(pending),
        answered: () => handshakes.answered(pending),
        linger: () => {},
      }
      const pending = handshakes.enter('127.0.0.1', new SenderCost(), {
        begin: () => {
          inbound = new InboundStream(socket, scheduler, new SenderCost(), steps)
          inbound
            .on('error', () => {})
            .once('close', () => {
              handshakes.over(pending)
              over.resolve()
            })
        },
        proceed: () => inbound?.proceed(),
        end: () => socket.destroy(),
      })
      await over.promise
      socket.destroy()
    })
  }
  await take(true)
  t.equal(answered, 0, 'its end is seen before it is answered')
  await take(false)
  t.equal(answered, 1)
  handshakes.endAll()
})
