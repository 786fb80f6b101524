import type { Selectable } from 'kysely'
import type { Database } from './database.ts'
import type { DatabaseSchema } from './schema.ts'
import { type LedgerStatement, statementOf, timestamp } from './support/statement.ts'

export type SigningKeyRow = Selectable<DatabaseSchema['signing_keys']>

/**
 * Keys that a token still in force may have been signed with, newest first. `retiredSince`: ms since the
 * epoch.
 */
export function listSigningKeys({ kysely }: Database, retiredSince: number): Promise<SigningKeyRow[]> {
  return kysely
    .selectFrom('signing_keys')
    .selectAll()
    .where((row) => row.or([row('retired_at', 'is', null), row('retired_at', '>=', timestamp(retiredSince))]))
    .orderBy('created_at', 'desc')
    .orderBy('kid')
    .execute()
}

interface NewSigningKey {
  readonly kid: string
  readonly publicJwk: string
  readonly sealedKey: string
  readonly at: number
}

/** Ends the keys that sign and inserts one that signs from now on: in this order, in one unit. */
export function replaceSigningKey(
  { kysely }: Database,
  { kid, publicJwk, sealedKey, at }: NewSigningKey,
): LedgerStatement[] {
  const retire = kysely
    .updateTable('signing_keys')
    .set({ retired_at: timestamp(at) })
    .where('retired_at', 'is', null)
  const row = {
    kid,
    public_jwk: publicJwk,
    sealed_key: sealedKey,
    created_at: timestamp(at),
    retired_at: null,
  }
  return [
    statementOf(retire.compile()),
    statementOf(kysely.insertInto('signing_keys').values(row).compile(), 1),
  ]
}
