import type { Database } from '../database.ts'
import type { PrincipalType } from '../schema.ts'
import { type LedgerStatement, statementOf, timestamp } from '../support/statement.ts'

export interface ApiKey {
  readonly keyId: string
  readonly type: PrincipalType
  readonly principalId: string
  /** bcrypt or argon2id. */
  readonly keyHash: string
}

export async function findApiKey({ kysely }: Database, keyId: string): Promise<ApiKey | undefined> {
  const row = await kysely.selectFrom('api_keys').selectAll().where('key_id', '=', keyId).executeTakeFirst()
  return row && { keyId, type: row.principal_type, principalId: row.principal_id, keyHash: row.key_hash }
}

export const apiKeyLookup = (database: Database) => (keyId: string) => findApiKey(database, keyId)

export function insertApiKey({ kysely }: Database, key: ApiKey, at: number): LedgerStatement {
  const row = {
    key_id: key.keyId,
    principal_type: key.type,
    principal_id: key.principalId,
    key_hash: key.keyHash,
    created_at: timestamp(at),
  }
  return statementOf(kysely.insertInto('api_keys').values(row).compile(), 1)
}

/** Ends every key of a principal: one that is enrolled again must not inherit any. May change no row. */
export function deleteApiKeys(
  { kysely }: Database,
  { type, id }: { readonly type: PrincipalType; readonly id: string },
): LedgerStatement {
  const own = kysely.deleteFrom('api_keys').where('principal_type', '=', type).where('principal_id', '=', id)
  return statementOf(own.compile())
}
