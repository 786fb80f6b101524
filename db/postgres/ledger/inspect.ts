import { type Kysely, sql } from 'kysely'
import { type AuthorityTables, comparedTables } from '../../ledger/authority/compare.ts'
import { exportedLines } from '../../ledger/read/read.ts'
import type { StoredRow } from '../../ledger/record/leaf.ts'
import { stampsBetween, stampsBySize } from '../../ledger/tree/anchored.ts'
import { inspectTree, type StoredLog, type StoredStanding } from '../../ledger/tree/inspect.ts'
import { readableKeys } from '../../ledger/tree/note.ts'
import {
  currentTree,
  newestCheckpoint,
  noteOfCheckpoint,
  type StoredTree,
  tileReader,
  treeKeysOf,
  treeStart,
} from '../../ledger/tree/store.ts'
import {
  isEmptyLogTrust,
  type LogTrust,
  NO_LOG_TRUST,
  parseSignedCheckpoint,
  type SignedCheckpoint,
} from '../../ledger/tree/trusted.ts'
import { inspectRows, type LedgerInspection, type ShowRows } from '../../ledger/verify/inspect.ts'
import { chainStartOf, KeptWatch, keptRows, NO_STATES, rowsSince } from '../../ledger/verify/kept.ts'
import { recomputer } from '../../ledger/verify/recompute.ts'
import { migrationState } from '../../migrate.ts'
import type { DatabaseSchema } from '../../schema.ts'
import { AUTHORITY_TABLES, authorityTablesOf, firstMeterSpan, type TableRow } from '../../stored-authority.ts'
import { POSTGRES_MIGRATIONS } from '../database.ts'
import { openLongReads, openReadConnections } from '../reading.ts'
import { agreeingPages, placedPages } from './placed-rows.ts'
import { postgresSchemaProblem } from './schema.ts'

type StoredLogDatabase = Kysely<DatabaseSchema>

const PAGE = 1_000

/** The tree of a database as it is now; null if none was begun, or the database is of an earlier version. */
async function postgresStoredLog(db: StoredLogDatabase): Promise<StoredLog | null> {
  const tables = await db.introspection.getTables()
  const tree = tables.some(({ name }) => name === 'audit_trees') ? await currentTree(db) : undefined
  if (!tree) return null
  const newest = (await newestCheckpoint(db, tree.tree))?.size ?? 0
  const keys = await treeKeysOf(db, tree.tree)
  const read = tileReader(db, tree.tree)
  return {
    origin: tree.origin,
    standing: await standingOf(db, tree),
    keys: readableKeys(keys.map(({ vkey }) => vkey)),
    checkpoints: checkpoints(db, tree, newest),
    // Width 0: as many hashes as there are.
    tiles: { size: newest, read: (place) => read(place, 0) },
  }
}

/** Reads all of it in one statement: the tree may grow meanwhile. */
async function standingOf(db: StoredLogDatabase, { tree }: StoredTree): Promise<StoredStanding> {
  const { rows } = await sql<StoredStanding>`
    select t.size, t.place, c.size as newest_size, c.place as newest_place,
      (select count(*) from audit_rows where place <= t.place) as rows
    from audit_trees t left join audit_checkpoints c on c.tree = t.tree
    where t.tree = ${tree} order by c.size desc nulls last limit 1`.execute(db)
  const [found] = rows
  if (!found) throw new Error('the tree is gone')
  return found
}

async function* checkpoints(
  db: StoredLogDatabase,
  tree: StoredTree,
  newest: number,
): AsyncGenerator<SignedCheckpoint> {
  let after = Number.MIN_SAFE_INTEGER
  for (;;) {
    const rows = await db
      .selectFrom('audit_checkpoints')
      .selectAll()
      .where('tree', '=', tree.tree)
      .where('size', '>', after)
      .where('size', '<=', newest)
      .orderBy('size')
      .limit(PAGE)
      .execute()
    const until = rows.at(-1)?.size ?? after
    const stamps = stampsBySize(await stampsBetween(db, tree.tree, { after, until }))
    for (const row of rows) {
      const signed = parseSignedCheckpoint(await noteOfCheckpoint(db, tree, row))
      yield { ...signed, stamps: stamps.get(row.size) ?? [] }
      after = row.size
    }
    if (rows.length < PAGE) return
  }
}

/**
 * Verifies the ledger of a PostgreSQL database, also while gateways write it: every chain, every decision in
 * the order of the rows' places, the guards of the audit tables, and the tables that decisions rest on against
 * the rows of changes, all of one instant. `shown` may show the progress of the rows.
 * Throws if the database has no ledger.
 */
export async function inspectPostgres(
  url: string,
  shown: ShowRows,
  trusted: LogTrust = NO_LOG_TRUST,
): Promise<LedgerInspection> {
  const { pool, kysely } = openLongReads(url)
  try {
    const problem = await postgresSchemaProblem(pool)
    const inspection = await kysely
      .transaction()
      .setIsolationLevel('repeatable read')
      .setAccessMode('read only')
      .execute((db) => inspectSnapshot(db, problem === null, shown, trusted))
    return { ...inspection, findings: [...inspection.findings, ...(problem === null ? [] : [problem])] }
  } finally {
    await kysely.destroy()
  }
}

async function inspectSnapshot(
  db: StoredLogDatabase,
  isOurForm: boolean,
  shown: ShowRows,
  trusted: LogTrust,
): Promise<LedgerInspection> {
  const isOurs = await isOfThisVersion(db)
  const { since } = trusted
  if (since && !isOurs) throw new Error(NO_STATES)
  const kept = since ? await rowsSince(db, since) : isOurs ? await keptRows(db) : null
  const watch = new KeptWatch(kept)
  const before = kept?.before ?? undefined
  const walk = recomputer({ before, due: await storedStateLeaves(db) })
  const read = isOurs && isOurForm ? agreeingPages : placedPages
  const rows = read(db, new AbortController().signal, kept?.after)
  const found = await postgresStoredLog(db)
  const stored = found && kept ? { ...found, start: await treeStart(db, kept.size) } : found
  const tree = stored || !isEmptyLogTrust(trusted) ? inspectTree(stored, trusted) : undefined
  const onRow = (row: StoredRow): void => watch.see(row)
  const total = Math.max(0, (found?.standing.place ?? 0) - (kept?.after ?? 0))
  const inspected = await inspectRows(shown(rows, total), { ...chainStartOf(kept), onRow, walk, tree })
  const { verdict } = inspected
  const inspection = verdict.ok
    ? { ...inspected, findings: [...inspected.findings, ...watch.findings()] }
    : inspected
  // A read that failed has ended the transaction, and nothing else can be read.
  const tables = verdict.ok && isOurs ? await readAuthorityTables(db) : null
  // Tables without anybody let nobody in: these are of a ledger that was put here by itself.
  if (tables && tables.principals.length + tables.resources.length === 0)
    return {
      ...inspection,
      notes: [...watch.notes(since), 'not compared: the tables next to the ledger, which are empty'],
    }
  const replay = verdict.ok && !(kept && !before) ? walk.replay : null
  const { findings, notes } = comparedTables(replay, tables, verdict.rows, Date.now())
  return {
    ...inspection,
    findings: [...inspection.findings, ...findings],
    notes: [...watch.notes(since), ...notes],
  }
}

async function storedStateLeaves(db: StoredLogDatabase): Promise<ReadonlySet<number>> {
  const tables = await db.introspection.getTables()
  if (!tables.some(({ name }) => name === 'audit_states')) return new Set()
  const stored = await db.selectFrom('audit_states').select('leaf').execute()
  return new Set(stored.map(({ leaf }) => leaf))
}

const isOfThisVersion = (db: StoredLogDatabase): Promise<boolean> =>
  migrationState(db, POSTGRES_MIGRATIONS).then(
    ({ pending }) => pending.length === 0,
    () => false,
  )

async function readAuthorityTables(db: StoredLogDatabase): Promise<AuthorityTables> {
  const found = new Map<string, readonly TableRow[]>()
  for (const name of AUTHORITY_TABLES) {
    const { rows } = await sql<TableRow>`select * from ${sql.table(name)}`.execute(db)
    found.set(name, rows)
  }
  const since = firstMeterSpan(Date.now())
  const { rows: meters } = await sql<TableRow>`select * from limit_meters where span >= ${since}`.execute(db)
  return authorityTablesOf((name) => found.get(name) ?? [], meters, since)
}

/** The ledger of a PostgreSQL database as the lines of an export, also while gateways write it. */
export async function* exportPostgres(url: string, folder: string | null = null): AsyncGenerator<string> {
  const { kysely } = openReadConnections(url)
  try {
    yield* exportedLines(kysely, { pages: placedPages }, folder)
  } finally {
    await kysely.destroy()
  }
}
