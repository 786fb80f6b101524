import type { Database } from '../database.ts'
import { type LedgerStatement, statementOf, timestamp } from '../support/statement.ts'

export interface ProviderIdentity {
  readonly issuer: string
  readonly subject: string
}

/** Finds the operator that was made for a person; undefined if there is none. */
export async function operatorOfIdentity(
  { kysely }: Database,
  { issuer, subject }: ProviderIdentity,
): Promise<string | undefined> {
  const row = await kysely
    .selectFrom('operator_identities')
    .select('principal_id')
    .where('issuer', '=', issuer)
    .where('subject', '=', subject)
    .executeTakeFirst()
  return row?.principal_id
}

/** Tells whether an operator was made for somebody of this issuer, by the operator's short name. */
export async function isOperatorOfIssuer(
  { kysely }: Database,
  issuer: string,
  name: string,
): Promise<boolean> {
  const one = kysely
    .selectFrom('operator_identities as i')
    .innerJoin('local_operator_principals as o', 'o.principal_id', 'i.principal_id')
    .select('i.subject')
    .where('i.issuer', '=', issuer)
    .where('o.name', '=', name)
    .limit(1)
  return (await one.executeTakeFirst()) !== undefined
}

export function insertIdentity(
  { kysely }: Database,
  { issuer, subject }: ProviderIdentity,
  principalId: string,
  at: number,
): LedgerStatement {
  const query = kysely
    .insertInto('operator_identities')
    .values({ issuer, subject, principal_id: principalId, created_at: timestamp(at) })
  return statementOf(query.compile(), 1)
}
