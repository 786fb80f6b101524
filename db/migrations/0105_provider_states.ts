import { type Kysely, sql } from 'kysely'
import type { Migration } from 'kysely/migration'

/**
 * The ids that providers' answers have stated, each as a digest by the key of its principal (docs/protocol.md#state).
 * `expires_at`: ms since the epoch.
 */
export const providerStates: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    await db.schema
      .createTable('provider_states')
      .addColumn('principal_ref', 'text', (column) => column.notNull())
      .addColumn('digest', 'text', (column) => column.notNull())
      .addColumn('expires_at', 'bigint', (column) => column.notNull())
      .addPrimaryKeyConstraint('provider_states_pkey', ['principal_ref', 'digest'])
      .execute()
    await sql`create index provider_states_by_age on provider_states (principal_ref, expires_at)`.execute(db)
  },
}
