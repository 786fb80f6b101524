import type { Selectable } from 'kysely'
import type { Database } from '../database.ts'
import type { DatabaseSchema } from '../schema.ts'
import { type LedgerStatement, statementOf, timestamp } from '../support/statement.ts'

export type StoredRehearsal = Selectable<DatabaseSchema['rehearsals']>

export const findRehearsal = ({ kysely }: Database, id: string): Promise<StoredRehearsal | undefined> =>
  kysely.selectFrom('rehearsals').selectAll().where('rehearsal_id', '=', id).executeTakeFirst()

export const insertRehearsal = ({ kysely }: Database, rehearsal: StoredRehearsal): LedgerStatement =>
  statementOf(kysely.insertInto('rehearsals').values(rehearsal).compile(), 1)

/** The rehearsals that are kept at most: each may take a megabyte. */
const MAX_REHEARSALS = 1_000

/** Forgets rehearsals before an instant (ms since the epoch), and the oldest beyond a thousand. */
export function deleteRehearsals({ kysely }: Database, before: number): LedgerStatement {
  const newest = kysely
    .selectFrom('rehearsals')
    .select('rehearsal_id')
    .orderBy('created_at', 'desc')
    .limit(MAX_REHEARSALS)
  const query = kysely
    .deleteFrom('rehearsals')
    .where((row) =>
      row.or([row('created_at', '<', timestamp(before)), row('rehearsal_id', 'not in', newest)]),
    )
  return statementOf(query.compile())
}
