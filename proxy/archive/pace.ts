import { constants, setPriority } from 'node:os'
import { performance } from 'node:perf_hooks'

/** The part of a core that a thread of the archive has beside calls; what inflates and collects for it makes that a fifth. */
const SHARE = 0.16
/** The use of the loop, in percent, from which on there are calls. */
const CALLS = 5
/** The time between two looks at the loop, and the longest rest. ms. */
const LOOK_MS = 100
const MAX_REST_MS = 1_000

/** The use of a thread's loop in percent, for others to read. The second number stays 0. */
export type LoopUse = Int32Array<SharedArrayBuffer>

/** Says to other threads how much this one does, until it is disposed of. */
export function watchedLoop(): Disposable & { readonly use: LoopUse } {
  const use = new Int32Array(new SharedArrayBuffer(8))
  let last = performance.eventLoopUtilization()
  const timer = setInterval(() => {
    const now = performance.eventLoopUtilization()
    use[0] = 100 * performance.eventLoopUtilization(now, last).utilization
    last = now
  }, LOOK_MS).unref()
  return { use, [Symbol.dispose]: () => clearInterval(timer) }
}

/**
 * Lets calls go first, in a thread of its own: what it returns is asked again and again, and sleeps beside calls until
 * the thread has had its share of a core.
 */
export function paced(use: LoopUse): () => void {
  // On Linux a thread has a priority of its own, as have those that it starts.
  if (process.platform === 'linux') setPriority(constants.priority.PRIORITY_BELOW_NORMAL)
  let [from, before] = [performance.now(), process.threadCpuUsage()]
  return () => {
    const { user, system } = process.threadCpuUsage(before)
    const rest = (user + system) / 1_000 / SHARE - (performance.now() - from)
    if (rest > 0 && rest < 1) return
    if (rest > 0 && (use[0] ?? 0) >= CALLS) Atomics.wait(use, 1, 0, Math.min(rest, MAX_REST_MS))
    ;[from, before] = [performance.now(), process.threadCpuUsage()]
  }
}
