import { CERTIFICATE_REASONS } from '../../../certs/certificate-error.ts'
import type { CertificateTasks } from '../../../certs/enrollment/certificate-tasks.ts'
import { ThreadPool } from '../../../db/support/thread.ts'
import { REFUSAL_REASONS, Refusal } from '../../../plugins/refusal.ts'

/** The time without a task after which the thread is let go. ms. */
const IDLE_MS = 10_000

/**
 * Reads certificates, requests and bundles of others on a thread, so that none holds up a call
 * (docs/threats.md#e2). Throws a fault as a refusal of the same reason (docs/protocol.md#certificate-checks).
 * Remembers nothing between two tasks.
 */
export const certificateThread = new ThreadPool<CertificateTasks>(
  import.meta,
  '../../../certs/enrollment/certificate-tasks',
  {
    name: 'the check of certificates',
    idleMs: IDLE_MS,
    refusal: certificateRefusal,
    overloaded: () => new Refusal('overloaded', { headers: { 'retry-after': '1' } }),
  },
)

/** Refuses with what was found, followed by what the table of reasons tells to do about it. */
function certificateRefusal(reason: string, message: string): Refusal | null {
  const known = CERTIFICATE_REASONS.find((known) => known === reason)
  if (!known) return null
  const [, ...cure] = REFUSAL_REASONS[known].message.split(/(?<=\.) /)
  return new Refusal(known, { message: [message, ...cure].join(' ') })
}
