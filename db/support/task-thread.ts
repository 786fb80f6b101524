// The thread of a pool: runs the tasks of one module for db/support/thread.ts, which alone starts it.
import { parentPort, workerData } from 'node:worker_threads'
import { messageOf } from './error-message.ts'

/** The start of a thread. `module`: the URL of a module that exports `openTasks`, which is given `data`. */
export interface ThreadStart {
  readonly module: string
  readonly data: unknown
}

/** A message to the thread. Each `ask` is answered by one `done` or `failed`, also after an `end`. */
export type ToThread =
  | { readonly kind: 'ask'; readonly id: number; readonly task: string; readonly input: unknown }
  | { readonly kind: 'more'; readonly id: number }
  /** Nobody waits for the answer any more. */
  | { readonly kind: 'end'; readonly id: number }

/** A message from the thread. `reason`: of an error that has one. */
export type FromThread =
  | { readonly kind: 'ready' }
  /** It cannot be started. */
  | { readonly kind: 'unusable'; readonly message: string }
  | { readonly kind: 'piece' | 'done'; readonly id: number; readonly value: unknown }
  | { readonly kind: 'failed'; readonly id: number; readonly message: string; readonly reason: string | null }

type OpenTasks = Readonly<Record<string, (input: unknown, signal: AbortSignal) => unknown>>

interface RunningTask {
  readonly gone: AbortController
  /** Resolves when the next piece is wanted, or the task is to end. */
  wanted: PromiseWithResolvers<void>
}

const port = parentPort
if (!port) throw new Error('db/support/task-thread.ts runs as a worker thread only')
const running = new Map<number, RunningTask>()

try {
  // Proven by the type of the pool, which was given the module.
  const { module, data } = workerData as ThreadStart
  const { openTasks } = (await import(module)) as {
    openTasks: (data: unknown) => OpenTasks | Promise<OpenTasks>
  }
  const tasks = await openTasks(data)
  port.on('message', (message: ToThread) => hear(tasks, message))
  send({ kind: 'ready' })
} catch (error) {
  send({ kind: 'unusable', message: messageOf(error) })
}

function hear(tasks: OpenTasks, message: ToThread): void {
  if (message.kind === 'ask') return void run(tasks, message)
  const task = running.get(message.id)
  if (message.kind === 'end') task?.gone.abort()
  task?.wanted.resolve()
}

async function run(tasks: OpenTasks, { id, task, input }: Extract<ToThread, { kind: 'ask' }>): Promise<void> {
  const own: RunningTask = { gone: new AbortController(), wanted: Promise.withResolvers() }
  running.set(id, own)
  try {
    const work = tasks[task]?.(input, own.gone.signal)
    send({ kind: 'done', id, value: await (isGenerator(work) ? passPieces(id, work, own) : work) })
  } catch (error) {
    const hasReason = error instanceof Error && 'reason' in error && typeof error.reason === 'string'
    send({ kind: 'failed', id, message: messageOf(error), reason: hasReason ? String(error.reason) : null })
  } finally {
    running.delete(id)
  }
}

/** Sends each piece when it is wanted. Returns the generator's result. */
async function passPieces(id: number, pieces: AsyncGenerator, own: RunningTask): Promise<unknown> {
  for (;;) {
    const next = await pieces.next()
    if (next.done) return next.value
    if (!own.gone.signal.aborted) {
      own.wanted = Promise.withResolvers()
      send({ kind: 'piece', id, value: next.value })
      await own.wanted.promise
    }
    if (own.gone.signal.aborted) await pieces.return(undefined)
  }
}

const isGenerator = (work: unknown): work is AsyncGenerator =>
  typeof work === 'object' && work !== null && Symbol.asyncIterator in work

/** Sends a message. Bytes with a buffer of their own are handed over, not copied. */
function send(message: FromThread): void {
  const value = 'value' in message ? message.value : null
  const isWhole = value instanceof Uint8Array && value.byteLength === value.buffer.byteLength
  port?.postMessage(message, isWhole && value.buffer instanceof ArrayBuffer ? [value.buffer] : [])
}
