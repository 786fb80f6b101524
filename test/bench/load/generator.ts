import { once } from 'node:events'
import { join } from 'node:path'
import type { Children } from '../ground/children.ts'
import type { FromGenerator, Job, Measured } from '../job.ts'

/** The time that the generator may take beyond the job itself. ms. */
const GRACE_MS = 15_000
/** The time that each connection may take to open. ms. */
const OPEN_MS = 40

export interface Generator {
  /**
   * Runs one job. Rejects where the target could not be measured, or the generator did not answer in time.
   */
  readonly measure: (job: Job) => Promise<Measured>
}

/** Starts the load generator on a core. One job at a time. */
export async function openGenerator(children: Children, core: number | null): Promise<Generator> {
  const { process: child } = await children.start({
    name: 'load',
    command: process.execPath,
    args: [join(import.meta.dirname, 'load.ts')],
    core,
    ipc: true,
    ready: async (starting) => {
      await once(starting, 'message', { signal: AbortSignal.timeout(GRACE_MS) })
      return 0
    },
  })
  return {
    measure: async (job) => {
      const limitMs = (job.warmupS + job.seconds) * 1_000 + job.connections * OPEN_MS + GRACE_MS
      const answered = once(child, 'message', { signal: AbortSignal.timeout(limitMs) })
      child.send(job)
      // Only test/bench/load/load.ts speaks on this channel.
      const [message] = (await answered) as [FromGenerator]
      if (message.kind === 'measured') return message.measured
      throw new Error(message.kind === 'failed' ? message.message : 'the generator started anew')
    },
  }
}
