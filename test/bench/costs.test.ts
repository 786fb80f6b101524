import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { entry, open, scratchDatabase } from '../support/db/scratch-ledger.ts'
import type { HeapCount } from './ground/count-heap.ts'
import { watchLog } from './ground/watch-log.ts'
import { medianOf } from './median.ts'

const PRELOAD = join(import.meta.dirname, './ground/count-heap.ts')

/** The main thread makes 20 MB of arrays when told, a second one 10 MB; 1 % of them live for a while. */
const ALLOCATING = `
import { isMainThread, parentPort, Worker } from 'node:worker_threads'
const kept = []
const make = (count) => {
  for (let i = 0; i < count; i += 1) kept[i % 100] = new Array(123).fill(i)
}
if (isMainThread) {
  const thread = new Worker(new URL(import.meta.url))
  thread.on('message', (what) => process.send(what))
  process.on('message', (what) => {
    if (what !== 'make') return
    make(20_000)
    thread.postMessage('make')
  })
} else {
  parentPort.on('message', () => {
    make(10_000)
    parentPort.postMessage('made')
  })
  parentPort.postMessage('ready')
}
`

t.test('what every thread of a process allocates on its heap is counted, collected or not', async (t) => {
  const file = join(t.testdir(), 'allocating.mjs')
  writeFileSync(file, ALLOCATING)
  const child = spawn(process.execPath, ['--import', PRELOAD, file], {
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  })
  t.teardown(() => child.kill('SIGKILL'))
  const messages: unknown[] = []
  const told = async (isIt: (message: unknown) => boolean): Promise<unknown> => {
    for (;;) {
      const found = messages.findIndex(isIt)
      if (found >= 0) return messages.splice(found, 1)[0]
      const [message] = await once(child, 'message')
      messages.push(message)
    }
  }
  const isCount = (message: unknown): boolean => typeof message === 'object'
  await told((message) => message === 'ready')
  child.send('take')
  await told(isCount)
  child.send('make')
  child.send('make')
  await told((message) => message === 'made')
  await told((message) => message === 'made')
  child.send('take')
  const { loopBytes, threadsBytes, pausesUs } = (await told(isCount)) as HeapCount
  t.ok(loopBytes > 40e6 && loopBytes < 50e6, `${loopBytes} bytes on the main thread`)
  t.ok(threadsBytes > 20e6 && threadsBytes < 30e6, `${threadsBytes} bytes on the other one`)
  t.ok(pausesUs > 0, 'the collector ran meanwhile')
})

t.test('what a ledger writes to its log is counted to the byte, and so are its rows', async (t) => {
  const file = await scratchDatabase(t.testdir())
  const ledger = await open(file)
  await ledger.commit({ entries: [entry()] })
  const log = watchLog(file)
  const before = statSync(`${file}-wal`).size
  log.hold()
  for (let count = 0; count < 20; count += 1) await ledger.commit({ entries: [entry(), entry()] })
  const after = statSync(`${file}-wal`).size
  await ledger.close()
  t.strictSame(log.take(), { logBytes: after - before, rows: 40 })
})

t.test('the median of an even number of turns lies between the two in the middle', (t) => {
  t.equal(medianOf([9, 1, 5]), 5)
  t.equal(medianOf([4, 1, 100, 2]), 3)
  t.ok(Number.isNaN(medianOf([])))
  t.end()
})
