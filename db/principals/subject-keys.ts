import type { Database } from '../database.ts'
import type { PrincipalType } from '../schema.ts'
import { type LedgerStatement, statementOf } from '../support/statement.ts'

export function sealedSubjectKey(
  db: Database,
): (ref: string) => string | undefined | Promise<string | undefined> {
  const lookup = db.lookup(
    db.kysely.selectFrom('subject_keys').select('sealed_key').where('principal_ref', '=', ''),
    'asked',
  )
  return (ref) => {
    const row = lookup(ref)
    return row instanceof Promise ? row.then((found) => found?.sealed_key) : row?.sealed_key
  }
}

/** The name that the ledger knows a principal by: the pseudonym of a user, the id itself of any other. */
export async function ledgerNameOf({ kysely }: Database, id: string): Promise<string> {
  const user = kysely
    .selectFrom('local_user_principals')
    .select('principal_ref')
    .where('principal_id', '=', id)
  return (await user.executeTakeFirst())?.principal_ref ?? id
}

interface NewSubjectKey {
  /** The name that the ledger knows the principal by. */
  readonly ref: string
  readonly type: PrincipalType
  readonly id: string
  readonly sealed: string
}

/** Gives a principal its key, unless it has one: commitments by that one stay provable. */
export function insertSubjectKey(
  { kysely }: Database,
  { ref, type, id, sealed }: NewSubjectKey,
): LedgerStatement {
  const query = kysely
    .insertInto('subject_keys')
    .values({ principal_ref: ref, principal_type: type, principal_id: id, sealed_key: sealed })
    .onConflict((known) => known.column('principal_ref').doNothing())
  return statementOf(query.compile())
}

/** Destroys every key that a principal has had: nobody can prove any more what its commitments commit to. */
export function deleteSubjectKeys({ kysely }: Database, type: PrincipalType, id: string): LedgerStatement {
  const own = kysely.deleteFrom('subject_keys').where('principal_type', '=', type)
  return statementOf(own.where('principal_id', '=', id).compile())
}
