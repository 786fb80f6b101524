import { sql } from 'kysely'
import type { Database } from '../database.ts'
import { RARE_ACTION } from '../ledger/read/find.ts'
import type { RowAssertion } from '../support/statement.ts'
import { PRINCIPAL_TABLES } from './tables.ts'

/** The rows of certificates of users that were erased since: of any other principal its own row stays. */
const OF_ERASED = ['user.cert_rotated', 'user.certificate_issued']

/**
 * Asserts that nobody is enrolled, and no certificate was ever issued: only this service rests on its CA and
 * names.
 */
export const nothingIssued = (database: Database): RowAssertion => {
  const { sql: text } = noPrincipalQuery(database).compile()
  return { sql: text, parameters: [] }
}

export const isAnythingIssued = async (database: Database): Promise<boolean> =>
  (await noPrincipalQuery(database).executeTakeFirst()) === undefined

function noPrincipalQuery({ kysely }: Database) {
  const none = kysely.selectNoFrom(sql.lit(1).as('holds'))
  const rows = kysely
    .selectFrom('audit_log')
    .select('seq')
    .where(
      'action',
      'in',
      OF_ERASED.map((action) => sql.lit(action)),
    )
    // Said again, or SQLite does not take the index, and reads the whole ledger.
    .where(RARE_ACTION)
  // Those rows may be archived.
  const archived = kysely.selectFrom('audit_segments').select('first')
  return Object.values(PRINCIPAL_TABLES)
    .map(({ table }) => kysely.selectFrom(kysely.dynamic.table(table).as('p')).select(sql.lit(1).as('holds')))
    .reduce((query, one) => query.where((row) => row.not(row.exists(one))), none)
    .where((row) => row.not(row.exists(rows)))
    .where((row) => row.not(row.exists(archived)))
}
