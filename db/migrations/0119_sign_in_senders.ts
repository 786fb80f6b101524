import type { Kysely } from 'kysely'
import type { Migration } from 'kysely/migration'

/** Sign-ins that are open know whose share of all they are of: a keyed digest; null: of none. */
export const signInSenders: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    await db.schema.alterTable('people_states').addColumn('sender', 'text').execute()
  },
}
