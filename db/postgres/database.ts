import {
  type DataTypeNode,
  Kysely,
  type KyselyPlugin,
  OperationNodeTransformer,
  type PluginTransformQueryArgs,
  type PluginTransformResultArgs,
  PostgresDialect,
  sql,
} from 'kysely'
import type { Migration } from 'kysely/migration'
import { Pool } from 'pg'
import { AuthorityChanges } from '../authority-moves.ts'
import type { Database } from '../database.ts'
import { answerTo, LedgerReader } from '../ledger/read/reader.ts'
import {
  COMMON_MIGRATIONS,
  type MigrationState,
  migrateToLatest,
  migrationState,
  type NamedMigrations,
  pendingMigrations,
  sortedMigrations,
} from '../migrate.ts'
import { auditTree } from '../migrations/0070_audit_tree.ts'
import { auditStates } from '../migrations/0099_audit_states.ts'
import type { DatabaseSchema } from '../schema.ts'
import { messageOf } from '../support/error-message.ts'
import { AUTHORITY_TOPIC } from '../support/notices.ts'
import { ThreadPool } from '../support/thread.ts'
import { migratingConfig, withClient } from './connection.ts'
import {
  authorityGeneration,
  candidateGeneration,
  GenerationTracker,
  limitGeneration,
  operatorGeneration,
  peopleGeneration,
  trustedCasGeneration,
} from './generation.ts'
import { LookupCache } from './kept-lookups.ts'
import { auditRemoval, auditRowColumns, triggerPaths } from './ledger/columns.ts'
import { postgresAuditGuards } from './ledger/guards.ts'
import { TAKE_EXCLUSIVE_LOCK } from './ledger/locks.ts'
import { placedPages } from './ledger/placed-rows.ts'
import { postgresSegments } from './ledger/segments.ts'
import { auditLog, auditParents, auditPlaces } from './ledger/table.ts'
import { postgresRowCounts, postgresTreeRows } from './ledger/tree-rows.ts'
import { openPostgresWriter } from './ledger/writer.ts'
import { PostgresNotices } from './notices.ts'
import { PresenceSession, TaskLeadership } from './presence.ts'
import { tlsFilesFault } from './protection.ts'
import { openReadConnections } from './reading.ts'
import { ServerClock } from './server-clock.ts'
import type { StateTasks } from './state-thread.ts'

/**
 * Orders every text column by its bytes, as SQLite does: pages rest on it, and a language's order changes
 * with the machine's libraries.
 */
export class BytewiseTextPlugin implements KyselyPlugin {
  readonly #transformer = new BytewiseTextTransformer()

  transformQuery({ node, queryId }: PluginTransformQueryArgs) {
    return this.#transformer.transformNode(node, queryId)
  }

  transformResult({ result }: PluginTransformResultArgs) {
    return Promise.resolve(result)
  }
}

const TEXT = sql`text collate "C"`.toOperationNode()

class BytewiseTextTransformer extends OperationNodeTransformer {
  protected override transformDataType(node: DataTypeNode): DataTypeNode {
    // A column's type may be raw; the transformer's own type says less than it takes.
    return node.dataType === 'text' ? (TEXT as unknown as DataTypeNode) : node
  }
}

/** An instant in ms takes eight bytes. */
const singleUses: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    await sql`drop index single_uses_expires_at`.execute(db)
    await sql`alter table single_uses drop column expires_at`.execute(db)
    await sql`alter table single_uses add column expires_at bigint not null`.execute(db)
  },
}

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
  '0096_audit_parents': auditParents,
  '0097_audit_columns': auditRowColumns,
  '0098_audit_segments': postgresSegments,
  '0098_audit_segments_removal': auditRemoval,
  '0099_audit_states': auditStates('bytea'),
  '0104_trigger_paths': triggerPaths,
  '0107_limits_generation': limitGeneration,
  '0114_people_generation': peopleGeneration,
})

/** The time without a question after which the thread is let go: a state is said once a day. ms. */
const STATE_IDLE_MS = 5_000

const stateThread = new ThreadPool<StateTasks>(import.meta, './state-thread', {
  name: 'the thread that computes states',
  idleMs: STATE_IDLE_MS,
  endsOnAbort: true,
})

export async function openPostgresDatabase(url: string): Promise<Database> {
  const fault = tlsFilesFault(url)
  if (fault !== null) throw new Error(fault)
  const { pool, kysely } = openReadConnections(url)
  try {
    if ((await pendingMigrations(kysely, POSTGRES_MIGRATIONS)).length > 0) await migrate(url)
  } catch (error) {
    await kysely.destroy()
    throw new Error(`the database cannot be opened: ${messageOf(error)}`, { cause: error })
  }
  const { presence, notices, leads, lookups, authority, clock } = sharedServicesOf(url, pool)
  const archive = { path: null }
  return {
    archive,
    kysely,
    engine: 'postgres',
    file: null,
    lookup: (query, how) => (how === 'asked' ? lookups.asked(query) : lookups.kept(query)),
    current: (since) => lookups.current(since),
    authority,
    audit: new LedgerReader(
      {
        ask: (question, signal) =>
          question.kind === 'state'
            ? stateThread.stream('answer', { url, question }, { signal })
            : answerTo(kysely, question, signal, placedPages),
        close: () => Promise.resolve(),
      },
      archive,
    ),
    treeRows: postgresTreeRows(kysely),
    rowCounts: postgresRowCounts(kysely),
    openWriter: () => openPostgresWriter(url),
    alone: (work) => withExclusiveLock(url, work),
    notices,
    leads: (task) => leads.holds(task),
    serverClock: () => (presence.stands ? clock.now : null),
    close: async () => {
      await presence.close()
      await kysely.destroy()
    },
  }
}

/** Makes a process's links to the others: idle until it hears or leads anything. */
function sharedServicesOf(url: string, pool: Pool) {
  const authority = new AuthorityChanges()
  const generation = new GenerationTracker((number) => {
    authority.advance()
    notices.deliver(AUTHORITY_TOPIC, String(number))
  })
  const notices: PostgresNotices = new PostgresNotices(
    () => presence,
    (number) => generation.take(number),
  )
  const leads: TaskLeadership = new TaskLeadership(() => presence)
  const clock = new ServerClock()
  const presence = new PresenceSession(url, [notices, generation, leads, clock])
  const lookups = new LookupCache(pool, presence, generation, authority)
  return { presence, notices, leads, lookups, authority, clock }
}

export async function postgresMigrationState(url: string): Promise<MigrationState> {
  const { kysely } = openReadConnections(url)
  try {
    return await migrationState(kysely, POSTGRES_MIGRATIONS)
  } finally {
    await kysely.destroy()
  }
}

async function migrate(url: string): Promise<void> {
  const dialect = new PostgresDialect({ pool: new Pool(migratingConfig(url)) })
  const kysely = new Kysely<DatabaseSchema>({ dialect, plugins: [new BytewiseTextPlugin()] })
  try {
    await migrateToLatest(kysely, POSTGRES_MIGRATIONS)
  } finally {
    await kysely.destroy()
  }
}

/** The time that a process may wait for the others that start alongside it. ms. */
const EXCLUSIVE_LOCK_MS = 60_000

/** The lock ends with its session. */
const withExclusiveLock = <Made>(url: string, work: () => Promise<Made>): Promise<Made> =>
  withClient(url, EXCLUSIVE_LOCK_MS, async (client) => {
    await client.query(TAKE_EXCLUSIVE_LOCK)
    return work()
  })
