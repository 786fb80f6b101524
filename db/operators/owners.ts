import { sql } from 'kysely'
import type { Database } from '../database.ts'
import type { RowAssertion } from '../support/statement.ts'

export interface CapabilityHolder {
  readonly principal_id: string
  readonly name: string
  readonly authority_revision: number
  /** The end of its current certificate. RFC 3339. Null: it has none. */
  readonly cert_not_after: string | null
}

export async function activeHolders(
  { kysely }: Database,
  capability: string,
): Promise<readonly CapabilityHolder[]> {
  return kysely
    .selectFrom('local_operator_principals as o')
    .leftJoin('certificate_pins as c', (on) =>
      on
        .on('c.principal_type', '=', 'operator')
        .onRef('c.principal_id', '=', 'o.principal_id')
        .on('c.is_current', '=', sql.lit(1 as const)),
    )
    .select(['o.principal_id', 'o.name', 'o.authority_revision', 'c.not_after as cert_not_after'])
    .where('o.is_active', '=', 1)
    .where('o.capabilities', 'like', holding(capability))
    .orderBy('o.created_at')
    .orderBy('o.principal_id')
    .execute()
}

// Tokens hold no quotation mark, and `_` of LIKE's stands in none of administration.
const holding = (capability: string): string => `%"${capability}"%`

export function oneHolderAtMost({ kysely }: Database, capability: string): RowAssertion {
  const holders = kysely
    .selectFrom('local_operator_principals')
    .select(({ fn }) => fn.countAll<number>().as('holders'))
    .where('is_active', '=', sql.lit(1 as const))
    .where('capabilities', 'like', holding(capability))
  const question = kysely.selectNoFrom(sql.lit(1).as('holds')).where(holders, '<', sql.lit(2))
  return { sql: question.compile().sql, parameters: [holding(capability)] }
}

export async function hasOperators({ kysely }: Database): Promise<boolean> {
  const one = kysely.selectFrom('local_operator_principals').select('principal_id').limit(1)
  return (await one.executeTakeFirst()) !== undefined
}
