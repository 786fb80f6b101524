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

/** The newest rows of a caller that are looked through. */
const LATER_ROWS = 200

interface RefusedCall {
  readonly principal_id: string
  readonly action: string
  readonly tool: string | null
  readonly model: string | null
  /** RFC 3339. */
  readonly last: string
}

/** Tells if the same caller was allowed the same after it was refused, as its newest rows say. */
export async function allowedSince({ kysely }: Database, call: RefusedCall): Promise<boolean> {
  const later = kysely
    .selectFrom('audit_log')
    .select(['status', 'action', 'tool', 'model'])
    .where('principal_id', '=', call.principal_id)
    .where('recorded_at', '>', call.last)
    .orderBy('recorded_at', 'desc')
    .limit(LATER_ROWS)
  const rows = await later.execute()
  return rows.some(
    ({ status, action, tool, model }) =>
      status === 'allowed' && action === call.action && tool === call.tool && model === call.model,
  )
}
