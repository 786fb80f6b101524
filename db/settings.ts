import type { Database } from './database.ts'
import { type Statement, statementOf, timestamp } from './statement.ts'

/**
 * The names of what the service remembers about itself. `admin_secret_hash` is a bcrypt or argon2id string,
 * never the secret. `authority` holds the files of the CA, its keys sealed, where many processes share it.
 */
export type SettingKey =
  | 'admin_secret_hash'
  | 'admin_secret_disabled'
  | 'admin_secret_used_at'
  | 'organisation'
  | 'trust_domain'
  | 'dpop_nonce_secret'
  | 'subject_key_sealer'
  | 'record_version'
  | 'authority'

/** Reads the setting's value; undefined where it was never written. */
export async function readSetting(db: Database, key: SettingKey): Promise<string | undefined> {
  const row = await db.kysely.selectFrom('settings').select('value').where('key', '=', key).executeTakeFirst()
  return row?.value
}

/** Writes the setting, new or not. `at`: ms since the epoch. */
export function writeSetting(db: Database, key: SettingKey, value: string, at: number): Statement {
  const row = { value, updated_at: timestamp(at) }
  const query = db.kysely
    .insertInto('settings')
    .values({ key, ...row })
    .onConflict((conflict) => conflict.column('key').doUpdateSet(row))
  return statementOf(query.compile(), 1)
}

/**
 * Writes the setting if it was never written; a second one is refused by the database, whoever comes second.
 */
export function firstSetting({ kysely }: Database, key: SettingKey, value: string, at: number): Statement {
  const query = kysely.insertInto('settings').values({ key, value, updated_at: timestamp(at) })
  return statementOf(query.compile(), 1)
}
