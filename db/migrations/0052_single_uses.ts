import { type Kysely, sql } from 'kysely'

/**
 * Keeps claims in one tree: half of the digest is enough to tell them apart, and no index says when they
 * expire (db/single-uses.ts). Earlier claims stay, up to a second longer.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('claims')
    .addColumn('digest', 'text', (column) => column.primaryKey().notNull())
    .addColumn('expires_at', 'integer', (column) => column.notNull())
    .modifyEnd(sql`without rowid`)
    .execute()
  await sql`
    insert into claims (digest, expires_at)
    select substr(digest, 1, 32) as half, max(unixepoch(expires_at) + 1) * 1000 from single_uses group by half
  `.execute(db)
  await db.schema.dropTable('single_uses').execute()
  await db.schema.alterTable('claims').renameTo('single_uses').execute()
}
