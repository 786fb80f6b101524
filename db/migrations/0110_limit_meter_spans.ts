import type { Kysely } from 'kysely'
import type { Migration } from 'kysely/migration'

/**
 * The meters of a limit in one span are found without those of its other spans, by columns that no call changes. A limit
 * says of which step of which span a row `limit.alert` is written: JSON, `[span, step]`.
 */
export const limitMeterSpans: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    await db.schema
      .createIndex('limit_meters_of_span')
      .on('limit_meters')
      .columns(['limit_id', 'span'])
      .execute()
    await db.schema.alterTable('limits').addColumn('alerted', 'text').execute()
  },
}
