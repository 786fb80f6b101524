import SQLite from 'better-sqlite3'
import { Kysely, SqliteDialect } from 'kysely'
import type { Migration } from 'kysely/migration'
import * as auditLog from '../../../migrations/0004_audit_log.ts'
import { auditTree } from '../../../migrations/0070_audit_tree.ts'
import * as attention from '../../../migrations/0090_attention.ts'
import { auditStates } from '../../../migrations/0099_audit_states.ts'
import { auditSegmentIndex } from '../../../migrations/0102_audit_segment_index.ts'
import { sqliteAuditGuards } from '../guards.ts'
import { sqliteSegments } from '../segments.ts'
import { type AuditSchema, auditSchema } from './schema.ts'
import { auditColumns, auditRows } from './table.ts'

/** Every migration of an audit table or its guards, in order. One that is missing stops the boot. */
const AUDIT_MIGRATIONS: readonly Migration[] = [
  ...[auditLog, sqliteAuditGuards, auditRows, auditTree('blob')],
  ...[attention, auditColumns, sqliteSegments, auditStates('blob'), auditSegmentIndex],
]

/** The audit schema as our migrations make it. Not for the writer's thread, which would load Kysely. */
export async function expectedAuditSchema(): Promise<AuditSchema> {
  const connection = new SQLite(':memory:')
  const db = new Kysely<unknown>({ dialect: new SqliteDialect({ database: connection }) })
  try {
    for (const migration of AUDIT_MIGRATIONS) await migration.up(db)
    return auditSchema(connection)
  } finally {
    await db.destroy()
  }
}
