import { readlinkSync } from 'node:fs'
import { availableParallelism, constants, getPriority, setPriority } from 'node:os'
import { basename } from 'node:path'

/** The thread's niceness above that of its process. */
const NICENESS_STEP = 10

/**
 * Lets the process's other threads go before this one if it has one core. Else each batch that arrives takes
 * the core from the event loop, which could have made the batch longer; a sixth of all work is lost so. Does
 * nothing on several cores.
 */
export function lowerPriorityOnOneCore(): void {
  if (availableParallelism() === 1) lowerThreadPriority()
}

/**
 * Lets other threads go before this one, for good. An idle core is had at once all the same. Does nothing on
 * other systems than Linux, and if the system does not allow it.
 */
export function lowerThreadPriority(): void {
  if (process.platform !== 'linux') return
  try {
    // On Linux a thread has a priority of its own, by its own id.
    const thread = Number(basename(readlinkSync('/proc/thread-self')))
    setPriority(thread, Math.min(getPriority(thread) + NICENESS_STEP, constants.priority.PRIORITY_LOW))
  } catch (error) {
    if (!(error instanceof Error && 'code' in error)) throw error
  }
}
