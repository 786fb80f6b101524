import { type Kysely, sql } from 'kysely'
import { newPseudonym } from '../principals/subject-keys.ts'

interface SchemaBeforeRecord {
  readonly local_user_principals: { readonly principal_id: string; readonly principal_ref: string }
}

/**
 * Prepares the second version of the record (docs/ledger.md): a pseudonym for each user, the keys of
 * commitments, and resources that demand only their binding. Registered resources keep their demands.
 */
export async function up(db: Kysely<SchemaBeforeRecord>): Promise<void> {
  await db.schema
    .alterTable('local_user_principals')
    .addColumn('principal_ref', 'text', (column) => column.notNull().defaultTo(''))
    .execute()
  for (const { principal_id: id } of await db
    .selectFrom('local_user_principals')
    .select('principal_id')
    .execute()) {
    await db
      .updateTable('local_user_principals')
      .set({ principal_ref: newPseudonym() })
      .where('principal_id', '=', id)
      .execute()
  }
  await db.schema
    .createIndex('local_user_principals_ref')
    .unique()
    .on('local_user_principals')
    .column('principal_ref')
    .execute()
  await db.schema
    .createTable('subject_keys')
    .addColumn('principal_ref', 'text', (column) => column.primaryKey().notNull())
    .addColumn('principal_type', 'text', (column) => column.notNull())
    .addColumn('principal_id', 'text', (column) => column.notNull())
    .addColumn('sealed_key', 'text', (column) => column.notNull())
    .execute()
  await db.schema
    .createIndex('subject_keys_principal')
    .on('subject_keys')
    .columns(['principal_type', 'principal_id'])
    .execute()
  await nullableCapability(db)
}

/** Neither engine can take NOT NULL from a column in the same words. */
async function nullableCapability(db: Kysely<SchemaBeforeRecord>): Promise<void> {
  const resources = db.schema.alterTable('mcp_resources')
  await resources.addColumn('demanded_capability', 'text').execute()
  await sql`update mcp_resources set demanded_capability = required_capability`.execute(db)
  await resources.dropColumn('required_capability').execute()
  await resources.renameColumn('demanded_capability', 'required_capability').execute()
}
