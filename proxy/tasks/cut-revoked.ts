import type { OpenCalls } from '../http/open-calls.ts'
import type { Task } from './every.ts'

/** Half of the second within which a revocation must end an open stream. ms. */
const EVERY_MS = 500

/**
 * Asks each open stream whether its call would still be allowed: its certificate, its principal, its
 * capability.
 */
export const cutRevoked = (calls: OpenCalls, clock: () => number): Task => ({
  name: 'cut-revoked',
  everyMs: EVERY_MS,
  run: () => calls.cutRevoked(clock()),
})
