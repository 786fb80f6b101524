import type { OpenCalls } from '../http/open-calls.ts'
import type { PeriodicTask } from './rounds.ts'

/** The interval of the check: half of the second within which a revocation must end an open stream. ms. */
const EVERY_MS = 500

/**
 * Cuts each open stream whose call would not be allowed any more, for its certificate, its principal or its
 * capability, and so those that wait for their callers.
 */
export const terminateRevokedStreams = (
  calls: readonly Pick<OpenCalls, 'terminateRevoked'>[],
  clock: () => number,
): PeriodicTask => ({
  name: 'cut-revoked',
  everyMs: EVERY_MS,
  run: async () => void (await Promise.all(calls.map((some) => some.terminateRevoked(clock())))),
})
