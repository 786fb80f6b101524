import { type Kysely, sql } from 'kysely'
import { type Migration, Migrator } from 'kysely/migration'
import { messageOf } from './error-message.ts'
import * as principals from './migrations/0001_principals.ts'
import * as certificatePins from './migrations/0002_certificate_pins.ts'
import * as settings from './migrations/0003_settings.ts'
import * as auditLog from './migrations/0004_audit_log.ts'
import * as principalCapabilities from './migrations/0045_principal_capabilities.ts'
import * as identity from './migrations/0046_identity.ts'
import * as mcp from './migrations/0047_mcp.ts'
import * as authorityRevision from './migrations/0048_authority_revision.ts'
import * as listIndexes from './migrations/0049_list_indexes.ts'
import * as record from './migrations/0050_record.ts'
import * as singleUses from './migrations/0052_single_uses.ts'
import type { Schema } from './schema.ts'
import { auditRows } from './sqlite/ledger/form/table.ts'
import { auditGuards } from './sqlite/ledger/guards.ts'

/**
 * Every migration by name, in the order of the names. What no common SQL can say stands beside what it
 * belongs to, from the engine's folder. The next one is 0053 or later: a name that sorts before one that has
 * run is refused.
 */
export const MIGRATIONS: Readonly<Record<string, Migration>> = {
  '0001_principals': principals,
  '0002_certificate_pins': certificatePins,
  '0003_settings': settings,
  '0004_audit_log': auditLog,
  '0004_audit_log_guards': auditGuards,
  '0045_principal_capabilities': principalCapabilities,
  '0046_identity': identity,
  '0047_mcp': mcp,
  '0048_authority_revision': authorityRevision,
  '0049_list_indexes': listIndexes,
  '0050_record': record,
  '0051_audit_rows': auditRows,
  '0052_single_uses': singleUses,
}

/**
 * The names of the migrations that the database still needs.
 * Throws where it has run one that we do not know: a newer version has been here, and its rows are not ours
 * to touch.
 */
export async function pendingMigrations(db: Kysely<Schema>): Promise<readonly string[]> {
  const applied = await appliedMigrations(db)
  const unknown = applied.filter((name) => !Object.hasOwn(MIGRATIONS, name))
  if (unknown.length > 0) {
    throw new Error(
      `the database was migrated by a newer version of this service (${unknown.join(', ')}): run that version, or restore a backup`,
    )
  }
  return Object.keys(MIGRATIONS).filter((name) => !applied.includes(name))
}

/**
 * Brings the schema up to date, or throws as {@link pendingMigrations} does.
 * Does NOT open a transaction: on SQLite the caller does, else a crash midway leaves half a migration.
 */
export async function migrateToLatest(db: Kysely<Schema>): Promise<void> {
  const pending = await pendingMigrations(db)
  if (pending.length === 0) return
  const migrator = new Migrator({ db, provider: { getMigrations: async () => ({ ...MIGRATIONS }) } })
  const { error } = await migrator.migrateToLatest()
  if (error !== undefined)
    throw new Error(`the database could not be migrated: ${messageOf(error)}`, { cause: error })
}

async function appliedMigrations(db: Kysely<Schema>): Promise<readonly string[]> {
  const tables = await db.introspection.getTables({ withInternalKyselyTables: true })
  if (!tables.some((table) => table.name === 'kysely_migration')) return []
  const { rows } = await sql<{ name: string }>`select name from ${sql.table('kysely_migration')}`.execute(db)
  return rows.map((row) => row.name)
}
