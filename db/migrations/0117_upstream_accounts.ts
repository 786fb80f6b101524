import type { Kysely } from 'kysely'
import type { Migration } from 'kysely/migration'

/**
 * Accounts of principals at MCP servers, their tokens sealed by the principal's own key (docs/accounts.md); what is
 * still to be revoked at issuers; our registrations there, and what MCP resources
 * say of them. The row of an account that has ended is removed.
 */
export const upstreamAccounts: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    await db.schema
      .createTable('upstream_accounts')
      .addColumn('account_id', 'text', (column) => column.primaryKey().notNull())
      .addColumn('principal_type', 'text', (column) => column.notNull())
      .addColumn('principal_id', 'text', (column) => column.notNull())
      .addColumn('principal_ref', 'text', (column) => column.notNull())
      .addColumn('resource_id', 'text', (column) => column.notNull())
      .addColumn('issuer', 'text', (column) => column.notNull())
      // Space-separated.
      .addColumn('scopes', 'text', (column) => column.notNull())
      // Sealed.
      .addColumn('tokens', 'text', (column) => column.notNull())
      .addColumn('bound', 'integer', (column) => column.notNull())
      .addColumn('revision', 'integer', (column) => column.notNull())
      .addColumn('connected_at', 'text', (column) => column.notNull())
      .addColumn('expires_at', 'text')
      .addColumn('refreshed_at', 'text')
      // Until when a process has the refresh for itself; null: nobody has.
      .addColumn('refreshing_until', 'text')
      .execute()
    await db.schema
      .createIndex('upstream_accounts_holder')
      .on('upstream_accounts')
      .columns(['principal_id', 'resource_id', 'principal_type'])
      .unique()
      .execute()
    await db.schema
      .createIndex('upstream_accounts_resource')
      .on('upstream_accounts')
      .column('resource_id')
      .execute()
    await db.schema
      .createTable('upstream_revocations')
      .addColumn('account_id', 'text', (column) => column.primaryKey().notNull())
      .addColumn('issuer', 'text', (column) => column.notNull())
      // Sealed.
      .addColumn('tokens', 'text', (column) => column.notNull())
      .addColumn('tries', 'integer', (column) => column.notNull())
      .addColumn('next_at', 'text', (column) => column.notNull())
      .addColumn('until', 'text', (column) => column.notNull())
      .execute()
    await db.schema
      .createIndex('upstream_revocations_next')
      .on('upstream_revocations')
      .column('next_at')
      .execute()
    await db.schema
      .createTable('upstream_clients')
      .addColumn('issuer', 'text', (column) => column.primaryKey().notNull())
      // Sealed.
      .addColumn('client', 'text', (column) => column.notNull())
      .execute()
    // JSON object: the authorization server of its accounts.
    await db.schema.alterTable('mcp_resources').addColumn('oauth', 'text').execute()
  },
}
