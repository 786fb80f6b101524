import { type Kysely, sql } from 'kysely'

/**
 * Which attached CAs vouch for which agent that is known by its SPIFFE id (docs/protocol.md#trusted-cas).
 * Agents that are enrolled already keep those that are attached now. A CA that is detached vouches for nobody
 * any more, whichever version detaches it.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('agent_trusted_cas')
    .addColumn('agent_id', 'text', (column) => column.notNull().references('internal_agents.agent_id'))
    .addColumn('ca_digest', 'text', (column) =>
      column.notNull().references('attached_cas.digest').onDelete('cascade'),
    )
    .addColumn('trusted_at', 'text', (column) => column.notNull())
    // A name in the ledger. Null: from before this table.
    .addColumn('trusted_by', 'text')
    .addPrimaryKeyConstraint('agent_trusted_cas_key', ['agent_id', 'ca_digest'])
    .execute()
  await db.schema
    .createIndex('agent_trusted_cas_ca')
    .on('agent_trusted_cas')
    .columns(['ca_digest', 'agent_id'])
    .execute()
  await sql`insert into agent_trusted_cas (agent_id, ca_digest, trusted_at)
    select a.agent_id, c.digest, c.attached_at from internal_agents a cross join attached_cas c
    where a.enrollment_method = 'spiffe' and a.spiffe_id is not null and a.spiffe_bundle is null
      and c.kind = 'spiffe'`.execute(db)
}
