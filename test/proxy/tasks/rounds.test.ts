import { once } from 'node:events'
import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { rounds } from '../../../proxy/tasks/rounds.ts'

/** A task over what `due` lists, whose work ends when the test says so. */
function stage({ atOnce = 2, waits = true }: { readonly atOnce?: number; readonly waits?: boolean } = {}) {
  const due: string[] = []
  const begun: string[] = []
  const open = new Map<string, PromiseWithResolvers<void>>()
  const task = rounds({
    name: 'try',
    everyMs: 1_000,
    atOnce,
    waits,
    async *due() {
      yield* due
    },
    idOf: (id) => id,
    work: (id, signal) => {
      begun.push(id)
      const one = Promise.withResolvers<void>()
      open.set(id, one)
      signal.addEventListener('abort', () => one.resolve())
      return one.promise
    },
  })
  const end = async (id: string): Promise<void> => {
    open.get(id)?.resolve()
    await nextTurn()
  }
  return { task, due, begun, end }
}

/** Whether a promise has settled by the next turn. */
async function hasEnded(promise: Promise<unknown>): Promise<boolean> {
  let ended = false
  void promise.finally(() => {
    ended = true
  })
  await nextTurn()
  return ended
}

await t.test('so much is under way at once, and what ends makes room', async (t) => {
  const { task, due, begun, end } = stage()
  due.push('a', 'b', 'c', 'd')
  const round = task.run()
  await nextTurn()
  t.same(begun, ['a', 'b'])
  await end('b')
  t.same(begun, ['a', 'b', 'c'])
  await end('a')
  t.same(begun, ['a', 'b', 'c', 'd'])
  await end('c')
  t.notOk(await hasEnded(round), 'a round ends with the last of its work')
  await end('d')
  t.ok(await hasEnded(round))
})

await t.test('a call during a round joins it, and one after it begins another', async (t) => {
  const { task, due, begun, end } = stage()
  due.push('a')
  const round = task.run()
  t.equal(task.run(), round)
  await nextTurn()
  await end('a')
  await round
  const next = task.run()
  await nextTurn()
  t.same(begun, ['a', 'a'])
  await end('a')
  await next
})

await t.test(
  'a round that does not wait ends when all has begun; what hangs is not begun twice',
  async (t) => {
    const { task, due, begun, end } = stage({ waits: false })
    due.push('hung', 'b')
    await task.run()
    await end('b')
    await task.run()
    t.same(begun, ['hung', 'b', 'b'])
    await task.stop()
  },
)

await t.test('stopping cuts what is under way, waits for it, and nothing begins any more', async (t) => {
  const { task, due, begun } = stage()
  due.push('a', 'b', 'c')
  const round = task.run()
  await nextTurn()
  await task.stop()
  t.ok(await hasEnded(round))
  await task.run()
  t.same(begun, ['a', 'b'])
})

await t.test(
  'a list that cannot be read is the error of its round, and stopping does not repeat it',
  async (t) => {
    const task = rounds<string>({
      name: 'try',
      everyMs: 1_000,
      atOnce: 1,
      waits: true,
      due: () => ({
        [Symbol.asyncIterator]: () => ({ next: () => Promise.reject(new Error('no database')) }),
      }),
      idOf: (id) => id,
      work: () => Promise.resolve(),
    })
    const round = task.run()
    await t.rejects(round, { message: 'no database' })
    await t.rejects(task.run(), { message: 'no database' }, 'the next round tries again')
    await t.resolves(task.stop())
  },
)

await t.test(
  'who does not lead begins nothing, and what is under way when it leads no more is cut',
  async (t) => {
    // Nothing else keeps this process alive.
    const alive = setInterval(() => {}, 1_000)
    t.teardown(() => clearInterval(alive))
    let leads = false
    const begun: string[] = []
    const task = rounds({
      name: 'try',
      everyMs: 1_000,
      atOnce: 2,
      waits: true,
      leads: () => leads,
      due: () => ['a'],
      idOf: (id) => id,
      work: async (id, signal) => {
        begun.push(id)
        const cut = once(signal, 'abort')
        leads = begun.length > 1
        await cut
      },
    })
    await task.run()
    t.same(begun, [])
    leads = true
    await task.run()
    t.same(begun, ['a'])
    leads = true
    const round = task.run()
    await nextTurn()
    t.same(begun, ['a', 'a'], 'who leads again begins anew')
    t.notOk(await hasEnded(round))
    await task.stop()
  },
)
