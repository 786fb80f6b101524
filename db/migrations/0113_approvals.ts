import { type Kysely, sql } from 'kysely'

/** Rules about approvals, of MCP servers, and the calls that wait for one (docs/approvals.md). */
export async function up(db: Kysely<unknown>): Promise<void> {
  const resources = db.schema.alterTable('mcp_resources')
  await resources.addColumn('approval', 'text').execute()
  await resources.addColumn('tool_approvals', 'text', (column) => column.notNull().defaultTo('{}')).execute()
  await resources
    .addColumn('approval_ttl_s', 'integer', (column) => column.notNull().defaultTo(600))
    .execute()
  await resources.addColumn('approval_wait_s', 'integer', (column) => column.notNull().defaultTo(0)).execute()
  await db.schema
    .createTable('approvals')
    .addColumn('approval_id', 'text', (column) => column.primaryKey().notNull())
    .addColumn('principal_type', 'text', (column) => column.notNull())
    .addColumn('principal_id', 'text', (column) => column.notNull())
    .addColumn('principal_ref', 'text', (column) => column.notNull())
    .addColumn('request_id', 'text', (column) => column.notNull())
    .addColumn('client', 'text')
    .addColumn('resource_id', 'text', (column) => column.notNull())
    .addColumn('resource_revision', 'integer', (column) => column.notNull())
    .addColumn('resource_name', 'text', (column) => column.notNull())
    .addColumn('tool', 'text', (column) => column.notNull())
    .addColumn('pin', 'text', (column) => column.notNull())
    .addColumn('approver', 'text', (column) => column.notNull())
    .addColumn('call_digest', 'text', (column) => column.notNull())
    // Sealed; null once it is decided.
    .addColumn('arguments', 'text')
    .addColumn('arguments_bytes', 'integer', (column) => column.notNull())
    .addColumn('status', 'text', (column) => column.notNull())
    .addColumn('created_at', 'text', (column) => column.notNull())
    .addColumn('expires_at', 'text', (column) => column.notNull())
    .addColumn('decided_by', 'text')
    .addColumn('decided_at', 'text')
    .addColumn('via', 'text')
    .addColumn('reason', 'text')
    .execute()
  // One is open at a time for the same call, and a call finds its own by this.
  await sql`create unique index approvals_open on approvals
    (principal_ref, call_digest, resource_revision) where status = 'open'`.execute(db)
  await db.schema
    .createIndex('approvals_call')
    .on('approvals')
    .columns(['principal_ref', 'call_digest'])
    .execute()
  await db.schema
    .createIndex('approvals_newest')
    .on('approvals')
    .columns(['created_at', 'approval_id'])
    .execute()
  await db.schema.createIndex('approvals_expiry').on('approvals').columns(['status', 'expires_at']).execute()
}
