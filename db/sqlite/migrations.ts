import type SQLite from 'better-sqlite3'
import { COMMON_MIGRATIONS, type NamedMigrations, sortedMigrations } from '../migrate.ts'
import * as auditLog from '../migrations/0004_audit_log.ts'
import * as singleUses from '../migrations/0052_single_uses.ts'
import { auditTree } from '../migrations/0070_audit_tree.ts'
import { auditStates } from '../migrations/0099_audit_states.ts'
import { auditColumns, auditRows } from './ledger/form/table.ts'
import { sqliteAuditGuards } from './ledger/guards.ts'
import { sqliteSegments } from './ledger/segments.ts'

export const SQLITE_MIGRATIONS: NamedMigrations = sortedMigrations({
  ...COMMON_MIGRATIONS,
  '0004_audit_log': auditLog,
  '0004_audit_log_guards': sqliteAuditGuards,
  '0051_audit_rows': auditRows,
  '0052_single_uses': singleUses,
  '0070_audit_tree': auditTree('blob'),
  '0097_audit_columns': auditColumns,
  '0098_audit_segments': sqliteSegments,
  '0099_audit_states': auditStates('blob'),
})

/** Tells whether a file has run these migrations, and no other. Without the layer that looks at each table for it. */
export function isMigrated(db: SQLite.Database): boolean {
  const has = db.prepare("select 1 from sqlite_schema where name = 'kysely_migration'").get() !== undefined
  const applied = has ? db.prepare<[], string>('select name from kysely_migration').pluck().all() : []
  const ours = Object.keys(SQLITE_MIGRATIONS)
  return applied.length === ours.length && ours.every((name) => applied.includes(name))
}
