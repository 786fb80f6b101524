import { sql } from 'kysely'
import type { Database } from './database.ts'
import { type LedgerStatement, type RowAssertion, statementOf, timestamp } from './support/statement.ts'

/**
 * The names of the service's memory of itself. `admin_secret_hash` is a bcrypt or argon2id string, never the
 * secret; `admin_secret_senders` the keyed digests of those that came with it of late. `authority` holds the
 * files of the CA, its keys sealed, if many processes share it or it was made again. `organisation_set`: when
 * somebody has answered for organisation and trust domain.
 */
export type SettingKey =
  | 'admin_secret_hash'
  | 'admin_secret_disabled'
  | 'admin_secret_used_at'
  | 'admin_secret_senders'
  | 'organisation'
  | 'trust_domain'
  | 'organisation_set'
  | 'dpop_nonce_secret'
  | 'subject_key_sealer'
  | 'record_version'
  | 'trusted_cas_recorded'
  | 'authority'

/** Reads the setting's value; undefined if it was never written. */
export async function readSetting(db: Database, key: SettingKey): Promise<string | undefined> {
  const row = await db.kysely.selectFrom('settings').select('value').where('key', '=', key).executeTakeFirst()
  return row?.value
}

/** Writes the setting, new or not. `at`: ms since the epoch. */
export function writeSetting(db: Database, key: SettingKey, value: string, at: number): LedgerStatement {
  const row = { value, updated_at: timestamp(at) }
  const query = db.kysely
    .insertInto('settings')
    .values({ key, ...row })
    .onConflict((conflict) => conflict.column('key').doUpdateSet(row))
  return statementOf(query.compile(), 1)
}

/** Writes the setting if it was never written; the database refuses a second one. */
export function insertSetting(
  { kysely }: Database,
  key: SettingKey,
  value: string,
  at: number,
): LedgerStatement {
  const query = kysely.insertInto('settings').values({ key, value, updated_at: timestamp(at) })
  return statementOf(query.compile(), 1)
}

/** Writes the setting as it is: a write that changes nothing. */
export function rewriteSetting({ kysely }: Database, key: SettingKey, at: number): LedgerStatement {
  const query = kysely
    .updateTable('settings')
    .set({ updated_at: timestamp(at) })
    .where('key', '=', key)
  return statementOf(query.compile())
}

/** Asserts that these are still the names that stand in ids and certificates. */
export function namesUnchanged(
  { kysely }: Database,
  { organisation, trustDomain }: { readonly organisation: string; readonly trustDomain: string },
): RowAssertion {
  const one = (key: SettingKey, value: string) =>
    kysely.selectFrom('settings').select('key').where('key', '=', sql.lit(key)).where('value', '=', value)
  const { sql: text } = one('organisation', '')
    .where((row) => row.exists(one('trust_domain', '')))
    .compile()
  return { sql: text, parameters: [organisation, trustDomain] }
}
