import type { Kysely } from 'kysely'

/**
 * The append-only ledger (docs/ledger.md#immutability). What makes it append-only differs per engine:
 * `db/<engine>/ledger/guards.ts`.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('audit_log')
    .addColumn('stream', 'text', (column) => column.notNull())
    // Eight bytes on PostgreSQL: four would be full after a fortnight at 2,000 rows a second.
    .addColumn('seq', 'bigint', (column) => column.notNull())
    .addColumn('recorded_at', 'text', (column) => column.notNull())
    .addColumn('request_id', 'text')
    .addColumn('principal_id', 'text')
    .addColumn('principal_type', 'text')
    .addColumn('action', 'text', (column) => column.notNull())
    .addColumn('status', 'text', (column) => column.notNull())
    .addColumn('tool', 'text')
    .addColumn('model', 'text')
    .addColumn('provider', 'text')
    .addColumn('cert_thumbprint', 'text')
    .addColumn('dpop_jkt', 'text')
    .addColumn('detail', 'text', (column) => column.notNull())
    .addColumn('config_digest', 'text', (column) => column.notNull())
    .addColumn('version', 'text', (column) => column.notNull())
    .addColumn('prev_hash', 'text', (column) => column.notNull())
    .addColumn('row_hash', 'text', (column) => column.notNull())
    .addColumn('leaf', 'text', (column) => column.notNull())
    .addPrimaryKeyConstraint('audit_log_pk', ['stream', 'seq'])
    // Two rows with one parent are a fork: it cannot even be stored.
    .addUniqueConstraint('audit_log_parent', ['stream', 'prev_hash'])
    .execute()
  for (const [name, columns] of INDEXES) {
    await db.schema.createIndex(name).on('audit_log').columns(columns).execute()
  }
}

export async function down(db: Kysely<unknown>): Promise<void> {
  await db.schema.dropTable('audit_log').execute()
}

// One per question of the audit list, plus the one that finds a decision's outcome at boot.
const INDEXES: readonly (readonly [string, string[]])[] = [
  ['audit_log_request', ['request_id', 'status']],
  ['audit_log_time', ['recorded_at']],
  ['audit_log_principal', ['principal_id', 'recorded_at']],
  ['audit_log_action', ['action', 'recorded_at']],
]
