import type { Kysely } from 'kysely'

/**
 * Adds flags that say whether the digest of a tool's approved definition, and of the definition that waits,
 * covers the whole text (docs/mcp.md#pinned). Digests stored before this migration cover six members.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const name of ['digest_is_whole', 'pending_is_whole']) {
    await db.schema
      .alterTable('mcp_tools')
      .addColumn(name, 'integer', (column) => column.notNull().defaultTo(0))
      .execute()
  }
}
