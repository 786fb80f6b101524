import { sql } from 'kysely'
import type { Database } from './database.ts'
import { type LedgerStatement, type RowAssertion, statementOf, timestamp } from './support/statement.ts'

/**
 * The service's memory of itself. `admin_secret_hash`: bcrypt or argon2id. `admin_secret_senders`: keyed
 * digests. `authority`: the CAs' files, keys sealed, if processes share them or a CA was made again or
 * replaced; `issuing_ca`: the digest of the only one that issues. `organisation_set`: when somebody has
 * answered for both names. `archive_asked`: the work on the archive that an operator has asked for, until it is
 * done; `archive_done`: how the last one ended.
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
  | 'bound_recorded'
  | 'authority'
  | 'issuing_ca'
  | 'archive_asked'
  | 'archive_done'

export async function readSetting(db: Database, key: SettingKey): Promise<string | undefined> {
  const row = await db.kysely.selectFrom('settings').select('value').where('key', '=', key).executeTakeFirst()
  return row?.value
}

export function writeSetting(db: Database, key: SettingKey, value: string, at: number): LedgerStatement {
  const row = { value, updated_at: timestamp(at) }
  const query = db.kysely
    .insertInto('settings')
    .values({ key, ...row })
    .onConflict((conflict) => conflict.column('key').doUpdateSet(row))
  return statementOf(query.compile(), 1)
}

export function insertSetting(
  { kysely }: Database,
  key: SettingKey,
  value: string,
  at: number,
): LedgerStatement {
  const query = kysely.insertInto('settings').values({ key, value, updated_at: timestamp(at) })
  return statementOf(query.compile(), 1)
}

/** Replaces a setting's value, if it is still the one that was read: another changes no row. */
export function replaceSetting(
  { kysely }: Database,
  key: SettingKey,
  { before, value, at }: { readonly before: string; readonly value: string; readonly at: number },
): LedgerStatement {
  const query = kysely
    .updateTable('settings')
    .set({ value, updated_at: timestamp(at) })
    .where('key', '=', key)
    .where('value', '=', before)
  return statementOf(query.compile(), 1)
}

/** Deletes a setting, if it still has that value. */
export function deleteSetting({ kysely }: Database, key: SettingKey, value: string): LedgerStatement {
  const query = kysely.deleteFrom('settings').where('key', '=', key).where('value', '=', value)
  return statementOf(query.compile())
}

/** Writes the setting as it is: a write that changes nothing. */
export function rewriteSetting({ kysely }: Database, key: SettingKey, at: number): LedgerStatement {
  const query = kysely
    .updateTable('settings')
    .set({ updated_at: timestamp(at) })
    .where('key', '=', key)
  return statementOf(query.compile())
}

/** Fails its unit if the passphrase was rotated since `sealed` was read as `subject_key_sealer`. */
export function passphraseUnchanged({ kysely }: Database, sealed: string): LedgerStatement {
  const query = kysely
    .updateTable('settings')
    .set((row) => ({ value: row.ref('value') }))
    .where('key', '=', 'subject_key_sealer')
    .where('value', '=', sealed)
  return statementOf(query.compile(), 1)
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
