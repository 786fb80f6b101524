import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Worker } from 'node:worker_threads'
import t, { type Test } from 'tap'
import { TaskIncompleteError, ThreadPool } from '../../../db/support/thread.ts'
import { type PoolTestTasks, sharedCells } from '../../support/db/pool-tasks.ts'

type Options = ConstructorParameters<typeof ThreadPool>[2]

const TASKS = '../../support/db/pool-tasks'
const AMPLE_MS = 60_000

function poolOf(t: Test, options: Partial<Options> = {}): ThreadPool<PoolTestTasks> {
  const pool = new ThreadPool<PoolTestTasks>(import.meta, TASKS, { name: 'the work', ...options })
  t.teardown(() => pool.close(new Error('the test is over')))
  return pool
}

const begun = async (cells: Int32Array, index = 0, before = 0): Promise<unknown> =>
  Atomics.waitAsync(cells, index, before).value

/** Lets tasks go on that block. */
function release(cells: Int32Array): void {
  Atomics.store(cells, 1, 1)
  Atomics.notify(cells, 1)
}

t.test('each question has its own answer, and an error its sentence', async (t) => {
  const pool = poolOf(t)
  const numbers = Array.from({ length: 100 }, (_, index) => index)
  const asked = numbers.map((n) => (n % 10 === 3 ? pool.ask('fail', null) : pool.ask('echo', n)))
  const answers = await Promise.allSettled(asked)
  for (const [n, answer] of answers.entries())
    if (n % 10 === 3) t.match(answer, { status: 'rejected', reason: { message: 'it cannot be done' } })
    else t.same(answer, { status: 'fulfilled', value: n })
  t.equal(await pool.ask('thread', null), await pool.ask('thread', null), 'one thread did it')
})

t.test('an error with a reason that the caller knows is made again by the caller', async (t) => {
  class KnownError extends Error {}
  const pool = poolOf(t, {
    refusal: (reason, message) => (reason === 'known' ? new KnownError(`${reason}: ${message}`) : null),
  })
  await t.rejects(pool.ask('fail', 'known'), new KnownError('known: it cannot be done'))
  const other = await pool.ask('fail', 'other').catch((error: unknown) => error)
  t.notOk(other instanceof KnownError)
  t.match(other, { message: 'it cannot be done' })
})

t.test('what cannot cross to a thread, or back, fails by itself', async (t) => {
  const pool = poolOf(t)
  const blocked = sharedCells()
  const busy = pool.ask('block', blocked)
  const inTurn = [pool.ask('echo', () => {}), pool.ask('give', null), pool.ask('echo', 'after')] as const
  release(blocked)
  await t.rejects(inTurn[0], { name: 'DataCloneError' })
  await t.rejects(inTurn[1], { message: /could not be cloned/ })
  t.equal(await inTurn[2], 'after')
  t.equal(await pool.ask('thread', null), await busy)
})

t.test('the tasks of a key are done in their order, one at a time; keys take turns', async (t) => {
  const pool = poolOf(t, { maxThreads: 2 })
  const [cells, done] = [sharedCells(), [] as string[]]
  const ask = (key: string, as: string) => pool.ask('echo', as, { key }).then(() => done.push(as))
  const busy = ['x', 'y'].map((key) => pool.ask('block', cells, { key }))
  const waiting = ['x1', 'x2', 'z1', 'z2'].map((as) => ask(as[0] ?? '', as))
  await begun(cells)
  release(cells)
  await Promise.all([...busy, ...waiting])
  for (const key of ['x', 'z'])
    t.same(
      done.filter((as) => as.startsWith(key)),
      [`${key}1`, `${key}2`],
    )

  const alone = poolOf(t, { maxThreads: 1 })
  const order: string[] = []
  const others = ['a', 'a', 'a', 'b', 'c'].map((key) =>
    alone.ask('echo', key, { key }).then(() => order.push(key)),
  )
  await Promise.all(others)
  t.same(order, ['a', 'a', 'b', 'c', 'a'])
})

t.test('a key has one thread at a time while another key has the other one', async (t) => {
  const pool = poolOf(t, { maxThreads: 2 })
  const cells = sharedCells()
  const long = pool.ask('block', cells, { key: 'a' })
  const second = pool.ask('thread', null, { key: 'a' })
  const other = await pool.ask('thread', null, { key: 'b' })
  release(cells)
  t.not(await long, other)
  t.type(await second, 'number')
})

t.test('a task that takes too long is given up with its thread, and no other task', async (t) => {
  const pool = poolOf(t, { workMs: 500, waitMs: AMPLE_MS })
  const before = await pool.ask('thread', null)
  const late = pool.ask('block', sharedCells())
  const next = pool.ask('thread', null)
  await t.rejects(late, new TaskIncompleteError('the work did not answer within 500 ms'))
  t.not(await next, before)
})

t.test('without a time for the work, the time to wait ends with the answer', async (t) => {
  const pool = poolOf(t, { waitMs: 1_000 })
  const before = await pool.ask('thread', null)
  await t.rejects(pool.ask('block', sharedCells()), { message: 'the work did not answer within 1000 ms' })
  t.not(await pool.ask('thread', null), before)
})

t.test('a task that is late while its thread starts leaves the thread to the next one', async (t) => {
  const pool = poolOf(t, { waitMs: 1 })
  await t.rejects(pool.ask('echo', 1), { message: 'the work did not answer within 1 ms' })
  let answer: unknown = null
  for (let n = 0; answer === null && n < 10_000; n += 1) answer = await pool.ask('echo', 2).catch(() => null)
  t.equal(answer, 2)
})

t.test(
  'tasks beyond those that may wait are refused at once, and those whose turn does not come',
  async (t) => {
    class OverloadedError extends Error {}
    const overloaded = (): Error => new OverloadedError('later')
    const cells = sharedCells()
    const pool = poolOf(t, { maxWaiting: 2, overloaded, workMs: AMPLE_MS })
    const busy = pool.ask('block', cells, { key: 'a' })
    await begun(cells)
    const waiting = [1, 2].map((n) => pool.ask('echo', n, { key: 'b' }))
    await t.rejects(pool.ask('echo', 3, { key: 'b' }), new OverloadedError('later'))
    const other = pool.ask('echo', 4, { key: 'c' })
    release(cells)
    t.same(await Promise.all([...waiting, other]), [1, 2, 4])
    await busy

    const held = sharedCells()
    const plain = poolOf(t, { maxWaiting: 0 })
    await t.rejects(plain.ask('echo', 1), { message: 'the work has too many tasks that wait' })
    const hasty = poolOf(t, { overloaded, waitMs: 1, workMs: AMPLE_MS })
    const first = hasty.ask('block', held)
    await t.rejects(hasty.ask('echo', 1), new OverloadedError('later'), 'its turn did not come')
    release(held)
    t.type(await first, 'number', 'the first one had its turn while the thread started')
  },
)

t.test('who has gone does not wait: what waits is not begun, and what is begun is told', async (t) => {
  const pool = poolOf(t)
  const gone = new AbortController()
  const [cells, counted] = [sharedCells(), sharedCells()]
  const busy = pool.ask('block', cells)
  await begun(cells)
  const waiting = pool.ask('block', counted, { signal: gone.signal })
  const running = pool.ask('block', cells, { signal: gone.signal })
  gone.abort(new Error('the caller has left'))
  await t.rejects(waiting, { message: 'the caller has left' })
  await t.rejects(running, { message: 'the caller has left' })
  await t.rejects(pool.ask('echo', 1, { signal: gone.signal }), { message: 'the caller has left' })
  release(cells)
  const thread = await busy
  t.equal(Atomics.load(counted, 0), 0, 'it was not begun')

  const [more, leaving] = [sharedCells(), new AbortController()]
  const begunTask = pool.ask('block', more, { signal: leaving.signal })
  await begun(more)
  leaving.abort(new Error('gone'))
  await t.rejects(begunTask, { message: 'gone' })
  const next = pool.ask('thread', null)
  release(more)
  t.equal(await next, thread, 'the thread finished the task, and nobody took its answer for another')
})

t.test('where the task is to end with its thread, who has gone ends both', async (t) => {
  const pool = poolOf(t, { endsOnAbort: true })
  const [gone, cells] = [new AbortController(), sharedCells()]
  const before = await pool.ask('thread', null)
  const task = pool.ask('block', cells, { signal: gone.signal })
  await begun(cells)
  gone.abort(new Error('the caller has left'))
  await t.rejects(task, { message: 'the caller has left' })
  t.not(await pool.ask('thread', null), before)
})

t.test('a thread that ends or breaks fails the task it had, and the next one is done', async (t) => {
  const pool = poolOf(t)
  for (const [task, message] of [
    ['exit', 'the work ended'],
    ['break', 'the work broke'],
  ] as const) {
    const lost = pool.ask(task, null)
    const next = pool.ask('echo', task)
    await t.rejects(lost, new TaskIncompleteError(message))
    t.equal(await next, task)
  }
  const broken = await pool.ask('break', null).catch((error: unknown) => error)
  t.match(broken, { cause: { message: 'nobody caught this' } })
})

t.test(
  'a module that cannot be opened refuses who waits with its sentence, and is tried again',
  async (t) => {
    const pool = poolOf(t, { data: 'it holds no policy' })
    await t.rejects(pool.start(), { message: 'it holds no policy' })
    const asked = [pool.ask('echo', 1), pool.ask('echo', 2)]
    for (const each of asked) await t.rejects(each, { message: 'it holds no policy' })
    await t.rejects(pool.ask('echo', 3), { message: 'it holds no policy' })
    const missing = new ThreadPool<PoolTestTasks>(import.meta, './no-such-module', { name: 'the work' })
    await t.rejects(missing.ask('echo', 1), { message: /Cannot find module/ })
    await t.rejects(poolOf(t, { startMs: 1 }).start(), { message: 'the work did not start in time' })
  },
)

t.test('a thread that nobody needs ends, and no more are kept than may be', async (t) => {
  const alive = setInterval(() => {}, AMPLE_MS)
  t.teardown(() => clearInterval(alive))
  const brief = poolOf(t, { idleMs: 1 })
  const started = once(process, 'worker') as Promise<[Worker]>
  const first = brief.ask('thread', null)
  const [worker] = await started
  const ended = once(worker, 'exit')
  await first
  await ended
  t.not(await brief.ask('thread', null), await first)

  const none = poolOf(t, { maxIdle: 0 })
  t.not(await none.ask('thread', null), await none.ask('thread', null))

  const one = poolOf(t, { maxThreads: 2, maxIdle: 1 })
  const both = async () => {
    const cells = sharedCells()
    const tasks = [one.ask('block', cells), one.ask('block', cells)]
    while (Atomics.load(cells, 0) < 2) await begun(cells, 0, Atomics.load(cells, 0))
    release(cells)
    return new Set(await Promise.all(tasks))
  }
  const before = await both()
  t.equal(before.intersection(await both()).size, 1)
})

t.test('a warm thread is started before it is needed, and again as soon as it ended', async (t) => {
  const pool = poolOf(t, { isWarm: true })
  await pool.start()
  const first = await pool.ask('thread', null)
  await t.rejects(pool.ask('exit', null))
  t.equal(await pool.ask('thread', null), first + 1)
})

t.test('a stream makes each piece when it is asked for, and returns what its task returns', async (t) => {
  const pool = poolOf(t, { maxTasksPerThread: Number.POSITIVE_INFINITY })
  const cells = sharedCells()
  const pieces = pool.stream('count', { to: 3, cells })
  t.same(await pieces.next(), { done: false, value: 1 })
  const others = await Array.fromAsync(pool.stream('count', { to: 50, cells: sharedCells() }))
  t.equal(others.length, 50, 'another stream of the same thread does not wait for it')
  t.equal(Atomics.load(cells, 0), 1, 'no piece was made meanwhile')
  t.same(await pieces.next(), { done: false, value: 2 })
  t.same(await pieces.next(), { done: false, value: 3 })
  t.same(await pieces.next(), { done: true, value: 'counted to 3' })
  const [bytes] = await Array.fromAsync(pool.stream('bytes', 100_000))
  t.equal(bytes?.length, 100_000)
})

t.test(
  'a stream that is read no further ends in the thread, and so does one whose caller has gone',
  async (t) => {
    const pool = poolOf(t)
    const [left, gone] = [sharedCells(), sharedCells()]
    for await (const made of pool.stream('count', { to: 1_000, cells: left })) if (made === 2) break
    await begun(left, 2)
    t.equal(Atomics.load(left, 0), 2)
    const leaving = new AbortController()
    const pieces = pool.stream('count', { to: 1_000, cells: gone }, { signal: leaving.signal })
    t.same(await pieces.next(), { done: false, value: 1 })
    // Nobody reads on.
    leaving.abort(new Error('the caller has left'))
    await begun(gone, 2)
    await t.rejects(pieces.next(), { message: 'the caller has left' })
    t.equal(await pool.ask('echo', 'next'), 'next')
  },
)

t.test(
  'a task whose thread ends with it is over when the thread is, also in native code',
  { skip: process.platform === 'linux' ? false : 'Linux alone says how many threads there are' },
  async (t) => {
    const threads = (): number => readdirSync('/proc/self/task').length
    const pool = poolOf(t, { endsOnAbort: true })
    const cells = sharedCells()
    const leaving = new AbortController()
    const asked = pool.ask('derive', cells, { signal: leaving.signal })
    await begun(cells)
    const before = threads()
    leaving.abort(new Error('the caller has left'))
    await t.rejects(asked, { message: 'the caller has left' })
    t.ok(threads() < before, 'whoever counts tasks counts threads')
  },
)

t.test('the streams of a thread that ends fail, however far they are', async (t) => {
  const pool = poolOf(t, { maxTasksPerThread: Number.POSITIVE_INFINITY })
  const [one, other] = [1, 2].map(() => pool.stream('count', { to: 9, cells: sharedCells() }))
  await one?.next()
  await other?.next()
  const pending = other?.next()
  await pending
  await t.rejects(pool.ask('exit', null), { message: 'the work ended' })
  await t.rejects(Promise.resolve(one?.next()), { message: 'the work ended' })
  await t.rejects(Promise.resolve(other?.next()), { message: 'the work ended' })
})

t.test('a closed pool does what was asked and what still comes, and keeps no thread', async (t) => {
  const pool = poolOf(t)
  const cells = sharedCells()
  const under = pool.ask('block', cells)
  await begun(cells)
  const closed = pool.close()
  release(cells)
  const first = await under
  await closed
  t.not(await pool.ask('thread', null), first)
  await pool.close()
})

t.test('closed with a reason, all that is under way fails with it', async (t) => {
  const pool = poolOf(t)
  const cells = sharedCells()
  const asked = [pool.ask('block', cells), pool.ask('echo', 1)]
  await begun(cells)
  const closed = pool.close(new Error('the database is closed'))
  for (const each of asked) await t.rejects(each, { message: 'the database is closed' })
  await closed
})

t.test('no thread keeps a process that waits for nothing; one that waits for a task goes on', async (t) => {
  const root = join(import.meta.dirname, '../../..')
  const program = `
    import { ThreadPool } from '${root}/db/support/thread.ts'
    const pool = new ThreadPool({ url: 'file://${root}/test/support/db/' }, './pool-tasks', { name: 'it', isWarm: true })
    process.stdout.write(await pool.ask('echo', 'done'))`
  const directory = t.testdir({ 'program.mjs': program })
  const { stdout } = await promisify(execFile)(process.execPath, [join(directory, 'program.mjs')])
  t.equal(stdout, 'done')
})
