import type { Database } from '../database.ts'
import type { JsonObject } from '../support/json.ts'
import { type LedgerStatement, statementOf } from '../support/statement.ts'
import type { McpResource } from './resources.ts'

/**
 * Replaces a server's words about itself, and raises the revision by 1. Changes no row if the resource was
 * changed or read since.
 */
export function storeServerFacts(
  { kysely }: Database,
  { resource_id: id, revision, last_read_at: lastReadAt }: McpResource,
  facts: JsonObject,
  by: string,
): LedgerStatement {
  const query = kysely
    .updateTable('mcp_resources')
    .set({ server_facts: JSON.stringify(facts), revision: revision + 1, changed_by: by })
    .where('resource_id', '=', id)
    .where('revision', '=', revision)
    .where('last_read_at', lastReadAt === null ? 'is' : '=', lastReadAt)
  return statementOf(query.compile(), 1)
}
