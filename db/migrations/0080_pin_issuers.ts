import type { Kysely } from 'kysely'

/**
 * The CA of each pinned certificate: lower-case hex SHA-256 of the intermediate of this service that has
 * issued it, or an empty text for a certificate of another CA (docs/operating.md#replace-the-ca). Null: from
 * before this migration. The preparation of the next CA settles those.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema.alterTable('certificate_pins').addColumn('issuer', 'text').execute()
  await db.schema
    .createIndex('certificate_pins_issuer')
    .on('certificate_pins')
    .columns(['issuer', 'principal_type', 'principal_id'])
    .execute()
}
