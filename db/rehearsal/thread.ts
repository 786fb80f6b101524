import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { Progress } from '../audit/rehearsal/task.ts'
import type { DatabaseLocation } from '../engine.ts'
import type { FromWalk, WalkData, Walked, WalkTask } from './messages.ts'

/** The compiled package has it as .js: like the file that this is. */
const CODE = `./worker${extname(import.meta.filename)}`

/** A bug that kept every row would end the thread, and not the gateway. MiB. */
const MOST_HEAP = 1_024

/** A task of one kind. */
export type WalkOf<Kind extends WalkTask['kind']> = Extract<WalkTask, { readonly kind: Kind }>

/**
 * Walks over recorded calls on a thread of its own, which ends with it. `onProgress` is told a few times a second. Rejects
 * with the signal's reason when it fires, and with an Error where the ledger cannot be read.
 */
export async function walkOnThread<Kind extends WalkTask['kind']>(
  location: DatabaseLocation,
  task: WalkOf<Kind>,
  signal: AbortSignal,
  onProgress: (progress: Progress) => void = () => {},
): Promise<Walked[Kind]> {
  signal.throwIfAborted()
  const { promise, resolve, reject } = Promise.withResolvers<Walked[Kind]>()
  const resourceLimits = { maxOldGenerationSizeMb: MOST_HEAP }
  const workerData: WalkData = { ...task, location }
  const thread = new Worker(new URL(CODE, import.meta.url), { workerData, resourceLimits })
  const gone = (): void => reject(signal.reason)
  signal.addEventListener('abort', gone, { once: true })
  thread.on('message', (message: FromWalk) => {
    if (message.kind === 'progress') onProgress({ rows: message.rows, of: message.of })
    // Of the kind that was asked for. Under `node --watch` Node reports what the thread imports through the port of its messages.
    else if (message.kind === 'done') resolve(message.result as Walked[Kind])
  })
  thread.on('error', reject)
  thread.on('exit', () => reject(new Error('the thread that reads the ledger ended')))
  try {
    return await promise
  } finally {
    signal.removeEventListener('abort', gone)
    await thread.terminate()
  }
}
