import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('certificate_pins')
    .addColumn('thumbprint', 'text', (column) => column.primaryKey().notNull())
    .addColumn('principal_type', 'text', (column) => column.notNull())
    .addColumn('principal_id', 'text', (column) => column.notNull())
    .addColumn('not_before', 'text', (column) => column.notNull())
    .addColumn('not_after', 'text', (column) => column.notNull())
    .addColumn('is_current', 'integer', (column) => column.notNull().defaultTo(1))
    .addColumn('grace_until', 'text')
    .addColumn('created_at', 'text', (column) => column.notNull())
    .execute()
  await db.schema
    .createIndex('certificate_pins_principal')
    .on('certificate_pins')
    .columns(['principal_type', 'principal_id'])
    .execute()
  // A principal has one current certificate: a rotation that forgot to retire the old pin cannot be stored.
  await db.schema
    .createIndex('certificate_pins_one_current')
    .unique()
    .on('certificate_pins')
    .columns(['principal_type', 'principal_id'])
    .where(sql.ref('is_current'), '=', sql.lit(1))
    .execute()
}
