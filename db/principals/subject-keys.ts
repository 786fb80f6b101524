import { randomBytes } from 'node:crypto'
import type { Database } from '../database.ts'
import type { PrincipalType } from '../schema.ts'
import { type LedgerStatement, statementOf } from '../support/statement.ts'

const ALPHABET = 'abcdefghijklmnopqrstuvwxyz234567'

/**
 * `usr_` and 128 random bits in lower-case base32 (RFC 4648 §6): says nothing of the person, and outlives its
 * erasure.
 */
export function newPseudonym(): string {
  let bits = 0
  let held = 0
  let text = 'usr_'
  for (const byte of randomBytes(16)) {
    held = (held << 8) | byte
    bits += 8
    for (; bits >= 5; bits -= 5) text += ALPHABET[(held >> (bits - 5)) & 31]
    held &= (1 << bits) - 1
  }
  return text + ALPHABET[(held << (5 - bits)) & 31]
}

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

export interface PrincipalName {
  readonly id: string
  readonly type: PrincipalType
}

/** Finds principals by their names in the ledger, at most 1,000; those that were erased are not among them. */
export async function principalNames(
  { kysely }: Pick<Database, 'kysely'>,
  refs: readonly string[],
): Promise<ReadonlyMap<string, PrincipalName>> {
  if (refs.length === 0) return new Map()
  const rows = await kysely
    .selectFrom('subject_keys')
    .select(['principal_ref as ref', 'principal_id as id', 'principal_type as type'])
    .where('principal_ref', 'in', [...new Set(refs)])
    .execute()
  return new Map(rows.map(({ ref, id, type }) => [ref, { id, type }]))
}

const NAMES_AT_ONCE = 1_000

/** Reads the ids of all users with their names in the ledger, in pages. Those that were erased are not among them. */
export async function* userNamePages({ kysely }: Pick<Database, 'kysely'>) {
  for (let after = ''; ; ) {
    const page = await kysely
      .selectFrom('subject_keys')
      .select(['principal_ref as ref', 'principal_id as id'])
      .where('principal_type', '=', 'user')
      .where('principal_ref', '>', after)
      .orderBy('principal_ref')
      .limit(NAMES_AT_ONCE)
      .execute()
    const last = page.at(-1)
    if (!last) return
    yield page
    after = last.ref
  }
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
