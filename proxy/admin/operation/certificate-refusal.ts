import { CertificateError } from '../../../certs/certificate-error.ts'
import { Refusal } from '../../../plugins/refusal.ts'

/**
 * Throws the fault of a certificate as a refusal of the same reason (docs/protocol.md#certificate-checks);
 * anything else as it is.
 */
export function certificateRefusal(error: unknown): never {
  if (!(error instanceof CertificateError)) throw error
  const { reason, message } = error
  throw new Refusal(reason, { message, cause: error })
}
