import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import t, { type Test } from 'tap'
import { spareThread } from '../../../db/rehearsal/spare-thread.ts'

function echo(t: Test): Worker {
  const code =
    'const { parentPort: port } = require("node:worker_threads"); port.on("message", (m) => m === "end" ? process.exit() : port.postMessage(m))'
  const thread = new Worker(code, { eval: true })
  t.teardown(() => thread.terminate())
  return thread
}

const asked = async (thread: Worker, question: string): Promise<unknown> => {
  const answered = once(thread, 'message')
  thread.postMessage(question)
  return (await answered)[0]
}

t.test('a thread that is kept does its next task, and no second one is kept', async (t) => {
  const [spare, thread] = [spareThread(), echo(t)]
  t.equal(spare.acquire(), null)
  t.equal(await asked(thread, 'one'), 'one')
  t.equal(spare.offer(thread), true)
  t.equal(spare.offer(echo(t)), false)
  t.equal(spare.acquire(), thread)
  t.equal(await asked(thread, 'two'), 'two')
  t.equal(spare.acquire(), null)
})

t.test('a thread that ended while it was kept is not handed out', async (t) => {
  const [spare, thread] = [spareThread(), echo(t)]
  await asked(thread, 'one')
  spare.offer(thread)
  const ended = once(thread, 'exit')
  thread.postMessage('end')
  thread.ref()
  await ended
  t.equal(spare.acquire(), null)
})

t.test('a thread that nobody takes ends', async (t) => {
  const [spare, thread] = [spareThread(1), echo(t)]
  await asked(thread, 'one')
  spare.offer(thread)
  const ended = once(thread, 'exit')
  const alive = setInterval(() => {}, 1_000)
  await ended
  clearInterval(alive)
  t.equal(spare.acquire(), null)
})
