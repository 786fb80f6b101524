import { sql } from 'kysely'
import type { Database } from '../database.ts'
import type { SettingKey } from '../settings.ts'
import { type LedgerStatement, type RowAssertion, statementOf } from '../support/statement.ts'

const HASH: SettingKey = 'admin_secret_hash'
const DISABLED: SettingKey = 'admin_secret_disabled'

/** The operator secret as it is stored: its hash, empty before one was set, and whether it is disabled. */
export async function readSecret({
  kysely,
}: Database): Promise<{ readonly hash: string; readonly disabled: boolean }> {
  const rows = await kysely
    .selectFrom('settings')
    .select(['key', 'value'])
    .where('key', 'in', [HASH, DISABLED])
    .execute()
  const stored = (key: SettingKey): string | undefined => rows.find((row) => row.key === key)?.value
  return { hash: stored(HASH) ?? '', disabled: stored(DISABLED) !== undefined }
}

export const storedSecretOf = (database: Database) => (): ReturnType<typeof readSecret> =>
  readSecret(database)

/** Asserts that the secret is the one of this hash, the empty text for that of the environment, and not disabled. */
export function secretUnchanged({ kysely }: Database): (hash: string) => RowAssertion {
  const one = (key: SettingKey) =>
    kysely.selectFrom('settings').select(sql.lit(1).as('holds')).where('key', '=', sql.lit(key))
  const enabled = kysely
    .selectNoFrom(sql.lit(1).as('holds'))
    .where((row) => row.not(row.exists(one(DISABLED))))
  const stored = enabled.where((row) => row.exists(one(HASH).where('value', '=', ''))).compile().sql
  const none = enabled.where((row) => row.not(row.exists(one(HASH)))).compile().sql
  return (hash) => (hash === '' ? { sql: none, parameters: [] } : { sql: stored, parameters: [hash] })
}

/** Lets the secret open doors again. Changes no row if it was not disabled. */
export function enableSecret({ kysely }: Database): LedgerStatement {
  return statementOf(kysely.deleteFrom('settings').where('key', '=', DISABLED).compile())
}
