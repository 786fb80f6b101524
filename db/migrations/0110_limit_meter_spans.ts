import type { Kysely } from 'kysely'
import type { Migration } from 'kysely/migration'

/** The meters of a limit in one span are found without those of its other spans. No call changes its columns. */
export const limitMeterSpans: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    await db.schema
      .createIndex('limit_meters_of_span')
      .on('limit_meters')
      .columns(['limit_id', 'span'])
      .execute()
  },
}
