import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  const bindings = (name: string, columns: string[]) =>
    db.schema.createIndex(name).on('mcp_bindings').columns(columns).execute()
  await bindings('mcp_bindings_oldest', ['created_at', 'binding_id'])
  await bindings('mcp_bindings_of_principal', ['principal_id', 'created_at', 'binding_id'])
  await bindings('mcp_bindings_of_resource', ['resource_id', 'created_at', 'binding_id'])
  // These begin with the same columns.
  await db.schema.dropIndex('mcp_bindings_principal').execute()
  await db.schema.dropIndex('mcp_bindings_resource').execute()
  await db.schema
    .createIndex('mcp_tools_quarantined')
    .on('mcp_tools')
    .column('resource_id')
    .where(sql.ref('state'), '=', sql.lit('quarantined'))
    .execute()
  await db.schema
    .createIndex('mcp_resources_unreadable')
    .on('mcp_resources')
    .column('resource_id')
    .where(sql.ref('enabled'), '=', sql.lit(1))
    .where(sql.ref('last_error'), 'is not', null)
    .execute()
}
