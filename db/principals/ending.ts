import { sql } from 'kysely'
import type { Database } from '../database.ts'
import { timestamp } from '../support/statement.ts'
import { pinsWithHolders } from './pins.ts'

/**
 * The current pins in service that end before an instant (ms since the epoch), earliest first; but no SVID
 * after whose end its agent was seen with a newer one.
 */
export function expiringPins({ kysely }: Database, before: number, limit: number, offset = 0) {
  return (
    pinsWithHolders(kysely)
      .select(['c.principal_type', 'c.principal_id', 'c.not_before', 'c.not_after', 'a.enrollment_method'])
      .select(({ fn }) => [
        fn.coalesce('a.name', 'u.name', 'w.name', 'o.name').as('name'),
        fn
          .coalesce('a.display_name', 'u.display_name', 'w.display_name', 'o.display_name')
          .as('display_name'),
      ])
      // A literal: the planner uses the partial index only if it sees the constant.
      .where('c.is_current', '=', sql.lit(1 as const))
      .where('c.not_after', '<', timestamp(before))
      .where(
        ({ fn }) => sql`${fn.coalesce('a.is_active', 'u.is_active', 'w.is_active', 'o.is_active')}`,
        '=',
        1,
      )
      .where((row) =>
        row.or([
          row('a.enrollment_method', 'is', null),
          row('a.enrollment_method', '!=', 'spiffe'),
          row('a.last_seen_at', 'is', null),
          row('a.last_seen_at', '<', row.ref('c.not_after')),
        ]),
      )
      .orderBy('c.not_after')
      .orderBy('c.principal_id')
      .limit(limit)
      .offset(offset)
      .execute()
  )
}
