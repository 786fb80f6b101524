import { pbkdf2Sync } from 'node:crypto'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { threadId } from 'node:worker_threads'

/** Tasks for the tests of threads. */
export type PoolTestTasks = ReturnType<typeof openTasks>

/** Memory that both sides see. */
export const sharedCells = (): Int32Array => new Int32Array(new SharedArrayBuffer(16))

/** `data`: throws this sentence instead, unless it is absent. */
export function openTasks(data?: string) {
  if (data !== undefined) throw new Error(data)
  return {
    echo: (value: unknown): unknown => value,
    thread: (_: null): number => threadId,
    fail: (reason: string | null): never => {
      throw Object.assign(new Error('it cannot be done'), reason === null ? {} : { reason })
    },
    exit: (_: null): never => process.exit(3),
    break: async (_: null) => {
      setImmediate(() => {
        throw new Error('nobody caught this')
      })
      await new Promise(() => {})
    },
    give: (_: null) => () => 'a function cannot cross',
    /** Says by the first cell that it has begun, then holds the thread until the second is set. */
    block: (cells: Int32Array): number => {
      Atomics.add(cells, 0, 1)
      Atomics.notify(cells, 0)
      Atomics.wait(cells, 1, 0)
      return threadId
    },
    /** Says by the first cell that it has begun, then is in native code for a while, which nothing interrupts. */
    derive: (cells: Int32Array): number => {
      Atomics.add(cells, 0, 1)
      Atomics.notify(cells, 0)
      return pbkdf2Sync('x', 'y', 1_000_000, 32, 'sha256').length
    },
    /** Counts up to a number, one for each piece; tells by the cells how many it has made, and that it has ended. */
    count: async function* ({ to, cells }: { to: number; cells: Int32Array }, signal: AbortSignal) {
      try {
        for (let made = 1; made <= to; made += 1) {
          Atomics.store(cells, 0, made)
          yield made
          await nextTurn(undefined, { signal })
        }
        return `counted to ${to}`
      } finally {
        Atomics.store(cells, 2, 1)
        Atomics.notify(cells, 2)
      }
    },
    bytes: async function* (length: number) {
      yield new Uint8Array(length).fill(7)
    },
  }
}
