import { sql } from 'kysely'
import type { Database } from '../../database.ts'
import { type PagePause, portionsOf } from '../../support/pages.ts'
import { timestamp } from '../../support/statement.ts'

/** The most principals asked for at once, and the newest rows of each that are read. */
const [AT_ONCE, ROWS] = [10, 1_000]

/**
 * Finds which principals, by their names in the ledger, were refused since an instant (ms since the epoch),
 * among the newest thousand rows of each.
 */
export async function refusedSince(
  db: Database,
  refs: readonly string[],
  since: number,
  pause: PagePause,
): Promise<ReadonlySet<string>> {
  const refused = new Set<string>()
  for (const some of portionsOf(refs, AT_ONCE)) {
    const { rows } = await refusedQuery(some, since).execute(db.kysely)
    for (const { ref } of rows) refused.add(ref)
    await pause()
  }
  return refused
}

/** Exported for the test of its query plan. */
export const refusedQuery = (refs: readonly string[], since: number) =>
  // The name that both engines give to the column of a list of values.
  sql<{
    ref: string
  }>`select p.column1 as ref from (values ${sql.join(refs.map((ref) => sql`(cast(${ref} as text))`))}) as p
    where exists (
      select 1 from (
        select a.status from audit_log as a
        where a.principal_id = p.column1 and a.recorded_at >= ${timestamp(since)}
        order by a.recorded_at desc limit ${ROWS}
      ) as newest where newest.status = 'denied'
    )`
