import type { Kysely } from 'kysely'

/**
 * A principal's candidate set (docs/rehearsal.md#candidates): judged alongside the real one on every call,
 * since an instant, and nothing else. Null: it has none.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const table of TABLES) {
    await db.schema.alterTable(table).addColumn('candidate', 'text').execute()
    await db.schema.alterTable(table).addColumn('candidate_since', 'text').execute()
  }
}

const TABLES = [
  'internal_agents',
  'local_user_principals',
  'local_workload_principals',
  'local_operator_principals',
]
