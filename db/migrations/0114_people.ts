import type { Kysely } from 'kysely'
import type { Migration } from 'kysely/migration'

/**
 * Grants of people who call without a certificate (docs/people.md), and the least proof that each MCP resource
 * takes of its callers. The row of a grant that has ended is removed.
 */
export const people: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    await db.schema
      .createTable('people_grants')
      .addColumn('id', 'text', (column) => column.primaryKey().notNull())
      .addColumn('principal_id', 'text', (column) => column.notNull())
      .addColumn('client_host', 'text', (column) => column.notNull())
      .addColumn('client_id_sha256', 'text', (column) => column.notNull())
      .addColumn('client_kind', 'text', (column) => column.notNull())
      .addColumn('kind', 'text', (column) => column.notNull())
      // Space-separated capabilities; null: all that the user holds.
      .addColumn('scope', 'text')
      .addColumn('resource', 'text', (column) => column.notNull())
      .addColumn('bound', 'text', (column) => column.notNull())
      .addColumn('jkt', 'text')
      // JSON array.
      .addColumn('amr', 'text', (column) => column.notNull())
      .addColumn('issued_at', 'text', (column) => column.notNull())
      .addColumn('expires_at', 'text', (column) => column.notNull())
      .execute()
    await db.schema
      .createIndex('people_grants_principal')
      .on('people_grants')
      .columns(['principal_id', 'issued_at', 'id'])
      .execute()
    await db.schema.createIndex('people_grants_end').on('people_grants').column('expires_at').execute()
    await db.schema
      .alterTable('mcp_resources')
      .addColumn('min_proof', 'text', (column) => column.notNull().defaultTo('certificate'))
      .execute()
    await db.schema
      .alterTable('mcp_resources')
      // JSON object: the name of a tool, and the least proof that it takes.
      .addColumn('tool_min_proof', 'text', (column) => column.notNull().defaultTo('{}'))
      .execute()
  },
}
