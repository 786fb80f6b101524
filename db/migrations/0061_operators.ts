import type { Kysely } from 'kysely'

/**
 * Operators, the fourth kind of principals (docs/operators.md): the same columns as workloads have by now.
 * The maker and the last changer of each object of administration: null for older ones. Browsers' sessions,
 * the people of an identity provider, and changes that wait for a second operator.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const table of ['internal_agents', 'local_user_principals', 'local_workload_principals'])
    await whoseWork(db, table)
  await whoseWork(db, 'mcp_resources')
  await whoseWork(db, 'mcp_bindings')
  await operators(db)
  await sessions(db)
  await db.schema
    .createTable('proposals')
    .addColumn('proposal_id', 'text', (column) => column.primaryKey().notNull())
    .addColumn('operation', 'text', (column) => column.notNull())
    .addColumn('action', 'text', (column) => column.notNull())
    .addColumn('capabilities', 'text', (column) => column.notNull())
    .addColumn('input', 'text', (column) => column.notNull())
    .addColumn('etag', 'text')
    .addColumn('proposed_by', 'text', (column) => column.notNull())
    .addColumn('via', 'text', (column) => column.notNull())
    .addColumn('status', 'text', (column) => column.notNull())
    .addColumn('decided_by', 'text')
    .addColumn('created_at', 'text', (column) => column.notNull())
    .addColumn('expires_at', 'text', (column) => column.notNull())
    .addColumn('decided_at', 'text')
    .execute()
  await db.schema
    .createIndex('proposals_newest')
    .on('proposals')
    .columns(['created_at', 'proposal_id'])
    .execute()
}

async function whoseWork(db: Kysely<unknown>, table: string): Promise<void> {
  await db.schema.alterTable(table).addColumn('created_by', 'text').execute()
  await db.schema.alterTable(table).addColumn('changed_by', 'text').execute()
}

async function operators(db: Kysely<unknown>): Promise<void> {
  const table = 'local_operator_principals'
  await db.schema
    .createTable(table)
    .addColumn('principal_id', 'text', (column) => column.primaryKey().notNull())
    .addColumn('name', 'text', (column) => column.notNull().unique())
    .addColumn('display_name', 'text')
    .addColumn('is_active', 'integer', (column) => column.notNull().defaultTo(1))
    .addColumn('enrollment_method', 'text', (column) => column.notNull())
    .addColumn('spiffe_id', 'text')
    .addColumn('dpop_jkt', 'text')
    .addColumn('previous_dpop_jkt', 'text')
    .addColumn('previous_dpop_jkt_until', 'text')
    .addColumn('federated', 'integer', (column) => column.notNull().defaultTo(0))
    .addColumn('federation_revision', 'integer', (column) => column.notNull().defaultTo(1))
    .addColumn('last_pushed_revision', 'integer', (column) => column.notNull().defaultTo(0))
    .addColumn('revision', 'integer', (column) => column.notNull().defaultTo(1))
    .addColumn('authority_revision', 'integer', (column) => column.notNull().defaultTo(1))
    .addColumn('created_at', 'text', (column) => column.notNull())
    .addColumn('updated_at', 'text', (column) => column.notNull())
    .addColumn('last_seen_at', 'text')
    .addColumn('capabilities', 'text', (column) => column.notNull().defaultTo('[]'))
    .addColumn('created_by', 'text')
    .addColumn('changed_by', 'text')
    .execute()
  await db.schema.createIndex(`${table}_newest`).on(table).columns(['created_at', 'principal_id']).execute()
}

async function sessions(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('operator_sessions')
    // The digest of the cookie's value, which is kept nowhere.
    .addColumn('id_sha256', 'text', (column) => column.primaryKey().notNull())
    // Null: by the operator secret.
    .addColumn('principal_id', 'text')
    .addColumn('via', 'text', (column) => column.notNull())
    .addColumn('amr', 'text', (column) => column.notNull().defaultTo('[]'))
    // The identity provider's names in a logout.
    .addColumn('issuer', 'text')
    .addColumn('subject', 'text')
    .addColumn('provider_session', 'text')
    // Digests of what in the configuration, or of the secret, that let it in: a session ends with it.
    .addColumn('mapped_by', 'text', (column) => column.notNull())
    .addColumn('created_at', 'text', (column) => column.notNull())
    .addColumn('used_at', 'text', (column) => column.notNull())
    .addColumn('expires_at', 'text', (column) => column.notNull())
    .execute()
  await db.schema
    .createIndex('operator_sessions_principal')
    .on('operator_sessions')
    .column('principal_id')
    .execute()
  await db.schema
    .createIndex('operator_sessions_expires_at')
    .on('operator_sessions')
    .column('expires_at')
    .execute()
  await db.schema
    .createTable('operator_identities')
    .addColumn('issuer', 'text', (column) => column.notNull())
    .addColumn('subject', 'text', (column) => column.notNull())
    .addColumn('principal_id', 'text', (column) => column.notNull())
    .addColumn('created_at', 'text', (column) => column.notNull())
    .addPrimaryKeyConstraint('operator_identities_key', ['issuer', 'subject'])
    .execute()
}
