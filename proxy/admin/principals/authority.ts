import { z } from 'zod'
import { type AuthorityState, authorityDetail, authorityState } from '../../../db/principals/authority.ts'
import type { PrincipalRecord } from '../../../db/principals/read.ts'
import { insertSubjectKey } from '../../../db/principals/subject-keys.ts'
import type { PrincipalType } from '../../../db/schema.ts'
import type { LedgerStatement, RowAssertion } from '../../../db/support/statement.ts'
import type { AuditNote } from '../../../plugins/audit/entries.ts'
import { commitChanges, retryIfOvertaken } from '../operation/change.ts'
import type { AdminContext, ChangeAuthorship } from '../operation/context.ts'
import type { PrincipalKind } from '../operation/kinds.ts'
import { checkIfMatch } from '../operation/operation.ts'
import { principalOf } from './view.ts'

const HOUR_MS = 3_600_000

/** The time that the predecessor of a certificate or a key stays valid. Hours. */
export const graceHours = z.number().min(0).max(720)

/** Returns the end of the predecessor. ms since the epoch; null: at once. */
export const graceUntil = (
  { rotationGraceHours }: Pick<AdminContext, 'rotationGraceHours'>,
  at: number,
  hours = rotationGraceHours,
): number | null => (hours === 0 ? null : at + hours * HOUR_MS)

/** A state's predecessor that is honoured until then; nothing if there is none, or no grace. */
export const predecessorInGrace = (
  previous: string | null,
  until: number | null,
): readonly (readonly [string, string])[] =>
  previous === null || until === null ? [] : [[previous, new Date(until).toISOString()]]

/** A change of a principal's authority, and its row's detail in addition to the new state. */
interface AuthorityChange extends AuditNote {
  /** The state after it, as far as it is another one. */
  readonly next: Partial<AuthorityState>
  /** One of them raises the principal's authority revision by 1, if it is as it was read. */
  readonly statements: readonly LedgerStatement[]
  readonly assertions?: readonly RowAssertion[]
  /** Further rows, of what ends with it. */
  readonly further?: readonly AuditNote[]
}

/**
 * Changes the authority of a principal: the change and its one row in one transaction, and the row says the
 * whole state that it makes (docs/ledger.md#authority). Changes of one principal are made one after the
 * other, so that one without `ifMatch` is never overtaken; with it, a principal that was changed since is
 * refused with `precondition_failed`. `make` returns null if nothing is to be changed. Returns the principal
 * as it was found.
 */
export function changeAuthority(
  context: AdminContext,
  kind: PrincipalKind,
  caller: ChangeAuthorship,
  { id, ifMatch }: PrincipalCondition,
  make: (
    record: PrincipalRecord,
    state: AuthorityState,
  ) => Promise<AuthorityChange | null> | AuthorityChange | null,
): Promise<PrincipalRecord> {
  const { database } = context
  return withLatestPrincipal(context, kind, { id, ifMatch }, async (record) => {
    const state = await authorityState(database, record, caller.at)
    const made = await make(record, state)
    if (!made) return record
    const { next, detail, action, statements, assertions = [], further = [] } = made
    const now = authorityDetail(record, record.authority_revision + 1, { ...state, ...next })
    const notes = [{ action, detail: { ...now, ...detail } }, ...further]
    await commitChanges(context, caller, { statements, assertions, notes })
    return record
  })
}

interface PrincipalCondition {
  readonly id: string
  /** Refuses with `precondition_failed` a principal that was changed since. */
  readonly ifMatch: string | undefined
}

/**
 * Changes a principal as it was just read, one change after the other, so that one without `ifMatch` is never
 * overtaken.
 */
export const withLatestPrincipal = <Made>(
  context: AdminContext,
  kind: PrincipalKind,
  { id, ifMatch }: PrincipalCondition,
  make: (record: PrincipalRecord) => Promise<Made>,
): Promise<Made> =>
  serializedByPrincipal(context, kind, id, () =>
    retryIfOvertaken(async () => {
      const record = await principalOf(context, kind, id)
      checkIfMatch(ifMatch, record)
      return record
    }, make),
  )

/** Does the work on one principal after all earlier work on it. */
export const serializedByPrincipal = <T>(
  { oneAtATime }: AdminContext,
  { type }: Pick<PrincipalKind, 'type'>,
  id: string,
  work: () => Promise<T>,
): Promise<T> => oneAtATime.run(`${type} ${id}`, work)

/** Gives a new principal the key of its commitments. */
export const newSubjectKey = (
  { database, subjectKeys }: AdminContext,
  { type, id, ref }: { readonly type: PrincipalType; readonly id: string; readonly ref: string },
): LedgerStatement => insertSubjectKey(database, { type, id, ref, sealed: subjectKeys.makeFor(ref) })
