import { type Kysely, sql } from 'kysely'
import type { Migration } from 'kysely/migration'

/**
 * The principals and the actions of the rows of a segment, each a JSON array of texts, by which a question finds
 * the files that it needs. Null: too many to list, or archived before they were listed.
 */
export const auditSegmentIndex: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    for (const column of ['principals', 'actions'])
      await sql`alter table audit_segments add column ${sql.ref(column)} text`.execute(db)
  },
}
