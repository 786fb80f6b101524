import { type Kysely, sql } from 'kysely'

/** The followed trust bundle of the configuration, by its name, that an agent's own one is a copy of. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema.alterTable('internal_agents').addColumn('followed_bundle', 'text').execute()
  await sql`create index internal_agents_followed on internal_agents (followed_bundle)
    where followed_bundle is not null`.execute(db)
}
