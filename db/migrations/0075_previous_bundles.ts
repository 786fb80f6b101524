import type { Kysely } from 'kysely'

/**
 * The bundles of an agent before its own one was replaced (docs/protocol.md#trust-bundle), each with the end
 * of its grace. The trigger that numbers states need not know: the bundle itself changes along with it.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema.alterTable('internal_agents').addColumn('previous_spiffe_bundles', 'text').execute()
}
