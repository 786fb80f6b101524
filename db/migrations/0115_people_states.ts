import type { Kysely } from 'kysely'
import type { Migration } from 'kysely/migration'

/**
 * Between two requests of a sign-in at the listener for people: codes, refresh tokens, browser sessions, by SHA-256,
 * their contents sealed; and which user was made for whom, by a keyed digest. Instants: ms since the epoch.
 */
export const peopleStates: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    await db.schema
      .createTable('people_states')
      .addColumn('kind', 'text', (column) => column.notNull())
      .addColumn('id_sha256', 'text', (column) => column.notNull())
      .addColumn('grant_id', 'text')
      .addColumn('uid', 'text')
      .addColumn('user_code', 'text')
      .addColumn('payload', 'text', (column) => column.notNull())
      .addColumn('consumed_at', 'bigint')
      .addColumn('expires_at', 'bigint', (column) => column.notNull())
      .addPrimaryKeyConstraint('people_states_key', ['kind', 'id_sha256'])
      .execute()
    for (const column of ['grant_id', 'uid', 'expires_at'])
      await db.schema.createIndex(`people_states_${column}`).on('people_states').column(column).execute()
    await db.schema
      .createTable('people_identities')
      .addColumn('digest', 'text', (column) => column.primaryKey().notNull())
      .addColumn('principal_id', 'text', (column) => column.notNull())
      .execute()
  },
}
