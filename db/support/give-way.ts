import { readlinkSync } from 'node:fs'
import { availableParallelism, constants, getPriority, setPriority } from 'node:os'
import { basename } from 'node:path'

/** The thread's niceness above that of its process. */
const NICENESS_STEP = 10

/**
 * Lets other threads go first on one core, else each batch takes it from the event loop: a sixth of all work
 * is lost so.
 */
export function lowerPriorityOnOneCore(): void {
  if (availableParallelism() === 1) lowerThreadPriority()
}

/** Lets other threads go first, for good. Does nothing but on Linux, and if the system does not allow it. */
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
