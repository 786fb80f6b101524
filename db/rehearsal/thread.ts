import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { DatabaseLocation } from '../engine.ts'
import type { WalkProgress } from '../ledger/rehearsal/task.ts'
import type { LocatedWalkTask, WalkMessage, WalkResults, WalkTask } from './messages.ts'
import { spareThread } from './spare-thread.ts'

/** The compiled package has it as .js: like the file that this is. */
const CODE = `./worker${extname(import.meta.filename)}`

/** A bug that kept every row would end the thread, and not the gateway. MiB. */
const MAX_HEAP_MIB = 1_024

/** A task of one kind. */
export type WalkTaskOf<Kind extends WalkTask['kind']> = Extract<WalkTask, { readonly kind: Kind }>

const spare = spareThread()

/**
 * Walks over recorded calls on a thread of its own. `onProgress` is told a few times a second. Rejects with
 * the signal's reason when it fires, and with an Error if the ledger cannot be read; the thread has then
 * ended. One that has walked over the calls of a few principals is kept for a while: the next such walk is
 * spared its start.
 */
export async function walkOnThread<Kind extends WalkTask['kind']>(
  location: DatabaseLocation,
  task: WalkTaskOf<Kind>,
  signal: AbortSignal,
  onProgress: (progress: WalkProgress) => void = () => {},
): Promise<WalkResults[Kind]> {
  signal.throwIfAborted()
  const { promise, resolve, reject } = Promise.withResolvers<WalkResults[Kind]>()
  const thread = spare.acquire() ?? newThread()
  const gone = (): void => reject(signal.reason)
  const ended = (): void => reject(new Error('the thread that reads the ledger ended'))
  const hear = (message: WalkMessage): void => {
    if (message.kind === 'progress') onProgress({ rows: message.rows, of: message.of })
    // The kind that was asked for. Under `node --watch` Node reports what the thread imports through the port
    // of its messages.
    else if (message.kind === 'done') resolve(message.result as WalkResults[Kind])
  }
  signal.addEventListener('abort', gone, { once: true })
  thread.on('message', hear).on('error', reject).on('exit', ended)
  let isKept = false
  try {
    thread.postMessage({ ...task, location } satisfies LocatedWalkTask)
    const walked = await promise
    isKept = task.wanted.principals !== null && spare.offer(thread)
    return walked
  } finally {
    signal.removeEventListener('abort', gone)
    thread.off('message', hear).off('exit', ended)
    if (!isKept) await thread.terminate()
    thread.off('error', reject)
  }
}

const newThread = (): Worker =>
  new Worker(new URL(CODE, import.meta.url), { resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MIB } })

/** Makes the function that walks over the calls of one database. */
export const walkerOf =
  (location: DatabaseLocation) =>
  <Kind extends WalkTask['kind']>(
    task: WalkTaskOf<Kind>,
    signal: AbortSignal,
    onProgress?: (progress: WalkProgress) => void,
  ): Promise<WalkResults[Kind]> =>
    walkOnThread(location, task, signal, onProgress)
