import { sql } from 'kysely'
import type { Database } from '../database.ts'
import { type LedgerStatement, statementOf } from '../support/statement.ts'

export interface ChangedAgent {
  readonly agent_id: string
  readonly federation_revision: number
}

interface ChangedAgentsQuery {
  /** The id that the page before has ended with. Empty: the first page. */
  readonly after: string
  /** The greatest number of them, at least 1. */
  readonly limit: number
}

/**
 * The federated agents, deactivated ones too, not pushed up to their revision, by id. A short page is the
 * last.
 */
export function changedAgents(
  { kysely }: Database,
  { after, limit }: ChangedAgentsQuery,
): Promise<ChangedAgent[]> {
  return (
    kysely
      .selectFrom('internal_agents')
      .select(['agent_id', 'federation_revision'])
      // A literal: the planner uses a partial index only if it sees the constant.
      .where('federated', '=', sql.lit(1 as const))
      .whereRef('federation_revision', '>', 'last_pushed_revision')
      .where('agent_id', '>', after)
      .orderBy('agent_id')
      .limit(limit)
      .execute()
  )
}

/**
 * Notes that an agent's revision was received; a lower or equal one changes no row. No change of the object.
 */
export function markPushed(
  { kysely }: Database,
  { id, revision }: { readonly id: string; readonly revision: number },
): LedgerStatement {
  const query = kysely
    .updateTable('internal_agents')
    .set({ last_pushed_revision: revision })
    .where('agent_id', '=', id)
    .where('last_pushed_revision', '<', revision)
  return statementOf(query.compile())
}
