import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { Progress } from '../audit/rehearsal/task.ts'
import type { DatabaseLocation } from '../engine.ts'
import type { FromWalk, WalkData, Walked, WalkTask } from './messages.ts'

/** The compiled package has it as .js: like the file that this is. */
const CODE = `./worker${extname(import.meta.filename)}`

/** A bug that kept every row would end the thread, and not the gateway. MiB. */
const MOST_HEAP = 1_024

/** Starting a thread takes longer than most walks about one principal: the last one stays so long for the next. ms. */
const IDLE_MS = 10_000

/** A task of one kind. */
export type WalkOf<Kind extends WalkTask['kind']> = Extract<WalkTask, { readonly kind: Kind }>

/** The thread that has nothing to do; it keeps no process alive. */
let idle: { readonly thread: Worker; readonly ends: NodeJS.Timeout } | null = null

/**
 * Walks over recorded calls on a thread. `onProgress` is told a few times a second. Rejects with the signal's reason when it
 * fires, and with an Error where the ledger cannot be read: the thread has ended then.
 */
export async function walkOnThread<Kind extends WalkTask['kind']>(
  location: DatabaseLocation,
  task: WalkOf<Kind>,
  signal: AbortSignal,
  onProgress: (progress: Progress) => void = () => {},
): Promise<Walked[Kind]> {
  signal.throwIfAborted()
  const { promise, resolve, reject } = Promise.withResolvers<Walked[Kind]>()
  const thread = taken()
  const gone = (): void => reject(signal.reason)
  signal.addEventListener('abort', gone, { once: true })
  thread.on('message', (message: FromWalk) => {
    if (message.kind === 'progress') onProgress({ rows: message.rows, of: message.of })
    // Of the kind that was asked for. Under `node --watch` Node reports what the thread imports through the port of its messages.
    else if (message.kind === 'done') resolve(message.result as Walked[Kind])
  })
  thread.on('error', reject)
  thread.on('exit', () => reject(new Error('the thread that reads the ledger ended')))
  const data: WalkData = { ...task, location }
  thread.postMessage(data)
  try {
    const result = await promise
    leave(thread)
    return result
  } catch (error) {
    await thread.terminate()
    throw error
  } finally {
    signal.removeEventListener('abort', gone)
  }
}

/** The idle thread, or a new one. */
function taken(): Worker {
  if (!idle)
    return new Worker(new URL(CODE, import.meta.url), {
      resourceLimits: { maxOldGenerationSizeMb: MOST_HEAP },
    })
  const { thread, ends } = idle
  clearTimeout(ends)
  idle = null
  forget(thread)
  thread.ref()
  return thread
}

// By their names: a Worker listens to itself too.
function forget(thread: Worker): void {
  for (const event of ['message', 'error', 'exit']) thread.removeAllListeners(event)
}

/** Keeps a thread for whoever comes next; one is enough. */
function leave(thread: Worker): void {
  forget(thread)
  // Whatever becomes of it now is nobody's error.
  thread.on('error', () => {})
  if (idle) {
    void thread.terminate()
    return
  }
  const ends = setTimeout(() => {
    if (idle?.thread === thread) idle = null
    void thread.terminate()
  }, IDLE_MS)
  idle = { thread, ends: ends.unref() }
  thread.once('exit', () => {
    if (idle?.thread === thread) idle = null
  })
  thread.unref()
}
