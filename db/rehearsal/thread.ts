import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { Rehearsed } from '../audit/rehearsal/rehearse.ts'
import type { Progress } from '../audit/rehearsal/task.ts'
import type { FromRehearsal, RehearsalData } from './messages.ts'

/** The compiled package has it as .js: like the file that this is. */
const CODE = `./worker${extname(import.meta.filename)}`

/** A bug that kept every row would end the thread, and not the gateway. MiB. */
const MOST_HEAP = 1_024

/**
 * Rehearses on a thread of its own, which ends with it. `onProgress` is told a few times a second. Rejects with the
 * signal's reason when it fires, and with an Error where the ledger cannot be read.
 */
export async function rehearseOnThread(
  data: RehearsalData,
  signal: AbortSignal,
  onProgress: (progress: Progress) => void = () => {},
): Promise<Rehearsed> {
  signal.throwIfAborted()
  const { promise, resolve, reject } = Promise.withResolvers<Rehearsed>()
  const resourceLimits = { maxOldGenerationSizeMb: MOST_HEAP }
  const thread = new Worker(new URL(CODE, import.meta.url), { workerData: data, resourceLimits })
  const gone = (): void => reject(signal.reason)
  signal.addEventListener('abort', gone, { once: true })
  thread.on('message', (message: FromRehearsal) => {
    if (message.kind === 'progress') onProgress({ rows: message.rows, of: message.of })
    // Under `node --watch` Node reports what the thread imports through the port of its messages.
    else if (message.kind === 'done') resolve(message.rehearsed)
  })
  thread.on('error', reject)
  thread.on('exit', () => reject(new Error('the thread of the rehearsal ended')))
  try {
    return await promise
  } finally {
    signal.removeEventListener('abort', gone)
    await thread.terminate()
  }
}
