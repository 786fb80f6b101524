import { hash } from 'node:crypto'
import { LedgerError } from '../../../db/ledger/record/entry.ts'
import { serviceEntry } from '../../../plugins/audit/entries.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { SignInContext } from '../signing-in.ts'
import type { SignInRefused } from './person.ts'

interface RefusedPerson {
  readonly error: SignInRefused
  readonly issuer: string
  readonly subject: string
}

/**
 * Records that somebody whom the provider has authenticated gets nothing: durable before it resolves. Nothing
 * of the row says who that is, unless it is an existing operator. Only so many of one person in a minute are
 * rows; the others are counted, as strangers are: nobody grows the chain by being refused.
 */
export async function recordRefusedSignIn(
  { context, refusedRows, anonymous }: Pick<SignInContext, 'context' | 'refusedRows' | 'anonymous'>,
  { error, issuer, subject }: RefusedPerson,
  { id, at }: Arrival,
): Promise<void> {
  const person = hash('sha256', `${issuer} ${subject}`)
  if (refusedRows.waitS(person) > 0) return anonymous.count('sign_in_refused')
  refusedRows.recordFailure(person)
  const detail = { via: 'oidc', reason: error.reason, issuer }
  const entry = serviceEntry('admin.sign_in_refused', 'denied', detail, at, context.configDigest)
  const whose = { principal_id: error.operator, principal_type: error.operator === null ? null : 'operator' }
  try {
    await context.ledger.commit({ entries: [{ ...entry, ...whose, request_id: id }] })
  } catch (cause) {
    throw cause instanceof LedgerError ? new Refusal('audit_unavailable', { cause }) : cause
  }
}
