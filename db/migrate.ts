import { type Kysely, sql } from 'kysely'
import { type Migration, Migrator } from 'kysely/migration'
import * as principals from './migrations/0001_principals.ts'
import * as certificatePins from './migrations/0002_certificate_pins.ts'
import * as settings from './migrations/0003_settings.ts'
import * as principalCapabilities from './migrations/0045_principal_capabilities.ts'
import * as identity from './migrations/0046_identity.ts'
import * as mcp from './migrations/0047_mcp.ts'
import * as authorityRevision from './migrations/0048_authority_revision.ts'
import * as listIndexes from './migrations/0049_list_indexes.ts'
import * as record from './migrations/0050_record.ts'
import * as operators from './migrations/0061_operators.ts'
import * as rehearsals from './migrations/0063_rehearsals.ts'
import * as candidates from './migrations/0064_candidates.ts'
import * as proposalRehearsals from './migrations/0066_proposal_rehearsals.ts'
import * as rowCounts from './migrations/0071_row_counts.ts'
import * as wholeDigests from './migrations/0072_whole_digests.ts'
import * as trustedCas from './migrations/0074_trusted_cas.ts'
import * as previousBundles from './migrations/0075_previous_bundles.ts'
import * as pinIssuers from './migrations/0080_pin_issuers.ts'
import * as bundleDigests from './migrations/0082_bundle_digests.ts'
import * as followedBundles from './migrations/0084_followed_bundles.ts'
import * as attention from './migrations/0090_attention.ts'
import * as setsAndLabels from './migrations/0094_sets_and_labels.ts'
import { auditSegmentIndex } from './migrations/0102_audit_segment_index.ts'
import { providerStates } from './migrations/0105_provider_states.ts'
import * as spendCounts from './migrations/0106_spend_counts.ts'
import * as limits from './migrations/0107_limits.ts'
import { limitMeterSpans } from './migrations/0110_limit_meter_spans.ts'
import * as approvals from './migrations/0113_approvals.ts'
import { people } from './migrations/0114_people.ts'
import { peopleStates } from './migrations/0115_people_states.ts'
import * as stops from './migrations/0116_stops.ts'
import { upstreamAccounts } from './migrations/0117_upstream_accounts.ts'
import * as exportCursors from './migrations/0118_export_cursors.ts'
import { signInSenders } from './migrations/0119_sign_in_senders.ts'
import type { DatabaseSchema } from './schema.ts'
import { messageOf } from './support/error-message.ts'

export type NamedMigrations = Readonly<Record<string, Migration>>

export const sortedMigrations = (migrations: NamedMigrations): NamedMigrations =>
  Object.fromEntries(Object.entries(migrations).sort(([one], [other]) => (one < other ? -1 : 1)))

/**
 * The migrations of both engines; steps beyond common SQL are in `db/<engine>/migrations.ts`. The next one is
 * 0111 or later: a name that sorts before one that has run is refused.
 */
export const COMMON_MIGRATIONS: NamedMigrations = {
  '0001_principals': principals,
  '0002_certificate_pins': certificatePins,
  '0003_settings': settings,
  '0045_principal_capabilities': principalCapabilities,
  '0046_identity': identity,
  '0047_mcp': mcp,
  '0048_authority_revision': authorityRevision,
  '0049_list_indexes': listIndexes,
  '0050_record': record,
  '0061_operators': operators,
  '0063_rehearsals': rehearsals,
  '0064_candidates': candidates,
  '0066_proposal_rehearsals': proposalRehearsals,
  '0071_row_counts': rowCounts,
  '0072_whole_digests': wholeDigests,
  '0074_trusted_cas': trustedCas,
  '0075_previous_bundles': previousBundles,
  '0080_pin_issuers': pinIssuers,
  '0082_bundle_digests': bundleDigests,
  '0084_followed_bundles': followedBundles,
  '0090_attention': attention,
  '0094_sets_and_labels': setsAndLabels,
  '0102_audit_segment_index': auditSegmentIndex,
  '0105_provider_states': providerStates,
  '0107_limits': limits,
  '0106_spend_counts': spendCounts,
  '0110_limit_meter_spans': limitMeterSpans,
  '0113_approvals': approvals,
  '0114_people': people,
  '0115_people_states': peopleStates,
  '0116_stops': stops,
  '0117_upstream_accounts': upstreamAccounts,
  '0118_export_cursors': exportCursors,
  '0119_sign_in_senders': signInSenders,
}

/** The migrations still needed. Throws if the database has run one that we do not know. */
export async function pendingMigrations(
  db: Kysely<DatabaseSchema>,
  migrations: NamedMigrations,
): Promise<readonly string[]> {
  const applied = await appliedMigrations(db)
  const unknown = applied.filter((name) => !Object.hasOwn(migrations, name))
  if (unknown.length > 0) {
    throw new Error(
      `the database was migrated by a newer version of this service (${unknown.join(', ')}): run that version, or restore a backup`,
    )
  }
  return Object.keys(migrations).filter((name) => !applied.includes(name))
}

export interface MigrationState {
  readonly applied: readonly string[]
  readonly pending: readonly string[]
}

export async function migrationState(
  db: Kysely<DatabaseSchema>,
  migrations: NamedMigrations,
): Promise<MigrationState> {
  const pending = await pendingMigrations(db, migrations)
  return { pending, applied: Object.keys(migrations).filter((name) => !pending.includes(name)) }
}

/**
 * Brings the schema up to date, or throws as {@link pendingMigrations} does. On PostgreSQL in one
 * transaction, one process at a time. On SQLite the caller must open a transaction.
 */
export async function migrateToLatest(
  db: Kysely<DatabaseSchema>,
  migrations: NamedMigrations,
): Promise<void> {
  const pending = await pendingMigrations(db, migrations)
  if (pending.length === 0) return
  const migrator = new Migrator({ db, provider: { getMigrations: async () => ({ ...migrations }) } })
  const { error } = await migrator.migrateToLatest()
  if (error !== undefined)
    throw new Error(`the database could not be migrated: ${messageOf(error)}`, { cause: error })
}

async function appliedMigrations(db: Kysely<DatabaseSchema>): Promise<readonly string[]> {
  const tables = await db.introspection.getTables({ withInternalKyselyTables: true })
  if (!tables.some((table) => table.name === 'kysely_migration')) return []
  const { rows } = await sql<{ name: string }>`select name from ${sql.table('kysely_migration')}`.execute(db)
  return rows.map((row) => row.name)
}
