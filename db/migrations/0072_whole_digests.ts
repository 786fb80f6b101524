import type { Kysely } from 'kysely'

/**
 * Whether the digest of a tool's approved definition, and of the one that waits, is of the whole text
 * (docs/mcp.md#pinned). Those that are stored by now are of six members.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const name of ['digest_is_whole', 'pending_is_whole']) {
    await db.schema
      .alterTable('mcp_tools')
      .addColumn(name, 'integer', (column) => column.notNull().defaultTo(0))
      .execute()
  }
}
