import { sql } from 'kysely'
import type { Database } from '../database.ts'
import { type LedgerStatement, statementOf } from '../support/statement.ts'

/** A federated agent with something that was not pushed yet (spec §3). */
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
 * The federated agents whose `federation_revision` is ahead of the last push, deactivated ones too, by id. A
 * page shorter than its limit is the last.
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
 * Notes that this revision of the agent was received. It never lowers the mark: a lower or equal revision
 * changes no row. Not a change of the object: neither its ETag nor its `federation_revision` moves.
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
