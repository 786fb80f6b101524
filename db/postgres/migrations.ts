import { type Kysely, sql } from 'kysely'
import type { Migration } from 'kysely/migration'
import { COMMON_MIGRATIONS, type NamedMigrations, sortedMigrations } from '../migrate.ts'
import { auditTree } from '../migrations/0070_audit_tree.ts'
import {
  authorityGeneration,
  candidateGeneration,
  operatorGeneration,
  trustedCasGeneration,
} from './generation.ts'
import { postgresAuditGuards } from './ledger/guards.ts'
import { auditPlaces } from './ledger/places.ts'
import { auditLog } from './ledger/table.ts'

/** An instant in ms takes eight bytes. */
const singleUses: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    await sql`drop index single_uses_expires_at`.execute(db)
    await sql`alter table single_uses drop column expires_at`.execute(db)
    await sql`alter table single_uses add column expires_at bigint not null`.execute(db)
  },
}

/** Every migration of a PostgreSQL database. */
export const POSTGRES_MIGRATIONS: NamedMigrations = sortedMigrations({
  ...COMMON_MIGRATIONS,
  '0004_audit_log': auditLog,
  '0004_audit_log_guards': postgresAuditGuards,
  '0052_single_uses': singleUses,
  '0053_audit_places': auditPlaces,
  '0060_authority_generation': authorityGeneration,
  '0062_operator_generation': operatorGeneration,
  '0065_candidate_generation': candidateGeneration,
  '0070_audit_tree': auditTree('bytea'),
  '0074_trusted_cas_generation': trustedCasGeneration,
})
