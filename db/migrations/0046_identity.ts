import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const table of ['internal_agents', 'local_user_principals', 'local_workload_principals']) {
    await db.schema.alterTable(table).addColumn('previous_dpop_jkt', 'text').execute()
    await db.schema.alterTable(table).addColumn('previous_dpop_jkt_until', 'text').execute()
    await db.schema.createIndex(`${table}_spiffe_id`).on(table).column('spiffe_id').execute()
  }
  // The CAs that an agent's SVIDs must chain to, if its enrollment named them; null: the attached ones.
  await db.schema.alterTable('internal_agents').addColumn('spiffe_bundle', 'text').execute()
  // A caller with an SVID of this id is this agent: there can be one.
  await db.schema
    .createIndex('internal_agents_one_svid')
    .unique()
    .on('internal_agents')
    .column('spiffe_id')
    .where(sql.ref('enrollment_method'), '=', sql.lit('spiffe'))
    .execute()
  await db.schema
    .createTable('api_keys')
    .addColumn('key_id', 'text', (column) => column.primaryKey().notNull())
    .addColumn('principal_type', 'text', (column) => column.notNull())
    .addColumn('principal_id', 'text', (column) => column.notNull())
    .addColumn('key_hash', 'text', (column) => column.notNull())
    .addColumn('created_at', 'text', (column) => column.notNull())
    .execute()
  await db.schema
    .createTable('attached_cas')
    .addColumn('digest', 'text', (column) => column.primaryKey().notNull())
    .addColumn('kind', 'text', (column) => column.notNull())
    .addColumn('ca_pem', 'text', (column) => column.notNull())
    .addColumn('subject', 'text', (column) => column.notNull())
    .addColumn('not_after', 'text', (column) => column.notNull())
    .addColumn('attached_at', 'text', (column) => column.notNull())
    .execute()
  // One row per proof, nonce or assertion that may pass once; gone when a copy would be too old anyway.
  await db.schema
    .createTable('single_uses')
    .addColumn('digest', 'text', (column) => column.primaryKey().notNull())
    .addColumn('expires_at', 'text', (column) => column.notNull())
    .execute()
  await db.schema.createIndex('single_uses_expires_at').on('single_uses').column('expires_at').execute()
  await db.schema
    .createTable('signing_keys')
    .addColumn('kid', 'text', (column) => column.primaryKey().notNull())
    .addColumn('public_jwk', 'text', (column) => column.notNull())
    .addColumn('sealed_key', 'text', (column) => column.notNull())
    .addColumn('created_at', 'text', (column) => column.notNull())
    .addColumn('retired_at', 'text')
    .execute()
}
