import { CsrError } from '../../certs/enrollment/csr.ts'
import { EnrollmentError } from '../../certs/enrollment/enrollment.ts'
import { ChainError } from '../../certs/x509/chain.ts'
import { REASONS, Refusal, type RefusalReason } from '../../plugins/refusal.ts'

/** Throws what a certificate was refused for as a refusal of its own reason (WIRE.md §2); anything else as it is. */
export function certificateRefusal(error: unknown): never {
  const known = error instanceof EnrollmentError || error instanceof CsrError || error instanceof ChainError
  if (!known) throw error
  const { reason, message } = error
  throw new Refusal(isReason(reason) ? reason : 'certificate_unreadable', { message, cause: error })
}

const isReason = (reason: string): reason is RefusalReason => Object.hasOwn(REASONS, reason)
