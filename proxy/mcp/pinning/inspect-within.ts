import type { Inspect } from './inspect.ts'

/**
 * The same inspection, given up after `withinMs`: an upstream that takes longer is one that could not be read. Ending the
 * session that was opened for it may take two seconds more.
 */
export const inspectWithin =
  (inspect: Inspect, withinMs: number): Inspect =>
  async (resource, signal) => {
    const late = AbortSignal.timeout(withinMs)
    const inspection = await inspect(resource, AbortSignal.any([signal, late]))
    if (inspection.ok || signal.aborted || !late.aborted) return inspection
    return { ok: false, problem: `it did not answer in time (${withinMs} ms)` }
  }
