import type { Kysely } from 'kysely'

/**
 * MCP servers behind this gateway, the definitions of their tools as they were approved, and who is bound to
 * them.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('mcp_resources')
    .addColumn('resource_id', 'text', (column) => column.primaryKey().notNull())
    .addColumn('name', 'text', (column) => column.notNull().unique())
    .addColumn('description', 'text')
    .addColumn('endpoint_url', 'text', (column) => column.notNull())
    .addColumn('auth_type', 'text', (column) => column.notNull())
    .addColumn('auth_secret_ref', 'text')
    .addColumn('required_capability', 'text', (column) => column.notNull())
    .addColumn('allowed_domains', 'text', (column) => column.notNull())
    .addColumn('enabled', 'integer', (column) => column.notNull())
    .addColumn('tool_capabilities', 'text', (column) => column.notNull())
    .addColumn('revision', 'integer', (column) => column.notNull().defaultTo(1))
    .addColumn('created_at', 'text', (column) => column.notNull())
    .addColumn('updated_at', 'text', (column) => column.notNull())
    .addColumn('era', 'text')
    .addColumn('protocol_version', 'text')
    .addColumn('server_facts', 'text')
    .addColumn('last_read_at', 'text')
    .addColumn('last_error', 'text')
    .execute()
  await db.schema
    .createTable('mcp_tools')
    .addColumn('resource_id', 'text', (column) => column.notNull().references('mcp_resources.resource_id'))
    .addColumn('name', 'text', (column) => column.notNull())
    .addColumn('definition', 'text', (column) => column.notNull())
    .addColumn('digest', 'text', (column) => column.notNull())
    .addColumn('state', 'text', (column) => column.notNull())
    .addColumn('pending_definition', 'text')
    .addColumn('pending_digest', 'text')
    .addColumn('flags', 'text', (column) => column.notNull())
    .addColumn('pinned_at', 'text', (column) => column.notNull())
    .addColumn('changed_at', 'text')
    .addPrimaryKeyConstraint('mcp_tools_key', ['resource_id', 'name'])
    .execute()
  await db.schema
    .createTable('mcp_bindings')
    .addColumn('binding_id', 'text', (column) => column.primaryKey().notNull())
    .addColumn('principal_type', 'text', (column) => column.notNull())
    .addColumn('principal_id', 'text', (column) => column.notNull())
    .addColumn('resource_id', 'text', (column) => column.notNull().references('mcp_resources.resource_id'))
    .addColumn('created_at', 'text', (column) => column.notNull())
    .addUniqueConstraint('mcp_bindings_once', ['principal_type', 'principal_id', 'resource_id'])
    .execute()
  await db.schema.createIndex('mcp_bindings_principal').on('mcp_bindings').column('principal_id').execute()
  // A resource that goes takes its bindings along, and the engine looks for any that were left.
  await db.schema.createIndex('mcp_bindings_resource').on('mcp_bindings').column('resource_id').execute()
}
