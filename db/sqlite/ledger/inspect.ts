import type SQLite from 'better-sqlite3'
import { Kysely, SqliteDialect } from 'kysely'
import { type AuthorityTables, comparedTables } from '../../ledger/authority/compare.ts'
import { MAIN_STREAM, type StoredRow } from '../../ledger/record/leaf.ts'
import { stampsBySize } from '../../ledger/tree/anchored.ts'
import { checkpointText } from '../../ledger/tree/checkpoint.ts'
import { inspectTree, type StoredLog, type StoredStanding } from '../../ledger/tree/inspect.ts'
import { noteOf, readableKeys } from '../../ledger/tree/note.ts'
import { treeStart } from '../../ledger/tree/store.ts'
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
import type { DamagedRow } from '../../ledger/verify/verify.ts'
import type { DatabaseSchema } from '../../schema.ts'
import { isMigrated } from '../migrations.ts'
import { type AuditSchema, sqliteSchemaProblem } from './form/schema.ts'
import { expectedAuditSchema } from './form/schema-expected.ts'
import { headProblem, readHead } from './head-file.ts'
import { leafRowsAfter, newestSeq, rowPages } from './row-pages.ts'
import { liveRows, openReadOnly, rowsAfter } from './rows.ts'
import { readAuthorityTables, viewsInPlaceOfTables } from './tables.ts'

interface TreeRow extends StoredStanding {
  readonly tree: number
  readonly origin: string
}

interface CheckpointRow {
  readonly size: number
  readonly root: string
  readonly signatures: string
}

/** Checkpoints that are read at once. */
const PAGE = 1_000

function sqliteStoredLog(db: SQLite.Database, start: StoredLog['start']): StoredLog | null {
  if (!db.prepare("select 1 from sqlite_schema where name = 'audit_trees'").get()) return null
  const tree = db
    .prepare<[], TreeRow>(
      `select t.tree, t.origin, t.size, t.place, c.size as newest_size, c.place as newest_place, t.place as rows
       from audit_trees t left join audit_checkpoints c on c.tree = t.tree
       order by t.tree desc, c.size desc limit 1`,
    )
    .get()
  if (!tree) return null
  const newest = db
    .prepare<[number], number>('select max(size) from audit_checkpoints where tree = ?')
    .pluck()
    .get(tree.tree)
  const keys = db
    .prepare<[number], string>('select vkey from audit_keys where tree = ?')
    .pluck()
    .all(tree.tree)
  const tile = db
    .prepare<[number, number, number], Buffer>(
      'select hashes from audit_tiles where tree = ? and level = ? and n = ?',
    )
    .pluck()
  return {
    origin: tree.origin,
    standing: tree,
    keys: readableKeys(keys),
    checkpoints: checkpoints(db, tree, newest ?? 0),
    tiles: { size: newest ?? 0, read: ({ level, n }) => tile.get(tree.tree, level, n) ?? null },
    start,
  }
}

/** Checkpoints up to a size: those signed while rows are read are later. */
function* checkpoints(
  db: SQLite.Database,
  { tree, origin }: TreeRow,
  newest: number,
): Generator<SignedCheckpoint> {
  const page = db.prepare<[number, number, number], CheckpointRow>(
    `select size, root, signatures from audit_checkpoints
     where tree = ? and size > ? and size <= ? order by size limit ${PAGE}`,
  )
  const cosigned = db
    .prepare<[number, number], string>(
      "select proof from audit_cosignatures where tree = ? and size = ? and proof like '— %' order by anchor",
    )
    .pluck()
  const stamped = db.prepare<[number, number, number], { readonly size: number; readonly proof: string }>(
    `select size, proof from audit_cosignatures
     where tree = ? and size > ? and size <= ? and anchor like 'timestamp:%' order by size, anchor`,
  )
  let after = Number.MIN_SAFE_INTEGER
  for (;;) {
    const rows = page.all(tree, after, newest)
    const stamps = stampsBySize(stamped.all(tree, after, rows.at(-1)?.size ?? after))
    for (const { size, root, signatures } of rows) {
      const text = checkpointText({ origin, size, root: Buffer.from(root, 'base64') })
      const note = noteOf(text, [...String(signatures).split('\n'), ...cosigned.all(tree, size)])
      yield { ...parseSignedCheckpoint(note), stamps: stamps.get(size) ?? [] }
      after = size
    }
    if (rows.length < PAGE) return
  }
}

function storedStateLeaves(db: SQLite.Database): ReadonlySet<number> {
  if (!db.prepare("select 1 from sqlite_schema where type = 'table' and name = 'audit_states'").get())
    return new Set()
  return new Set(db.prepare<[], number>('select leaf from audit_states').pluck().all())
}

/**
 * Verifies a database, also while it is written: chains, audit schema, noted head, decisions, and the tables
 * they rest on. `at`: ms since the epoch. `shown`: for progress. Throws if the file has no ledger.
 */
export async function inspectDatabase(
  file: string,
  at: number,
  shown: ShowRows,
  trusted: LogTrust = NO_LOG_TRUST,
): Promise<LedgerInspection> {
  const db = openReadOnly(file)
  try {
    return await inspectOpened(db, file, at, shown, trusted)
  } finally {
    db.close()
  }
}

async function inspectOpened(
  db: SQLite.Database,
  file: string,
  at: number,
  shown: ShowRows,
  trusted: LogTrust,
): Promise<LedgerInspection> {
  // Before the rows: the writer notes a head after the commit, so it is never ahead of rows that are read
  // later.
  const noted = readHead(file)
  const expected = await expectedAuditSchema()
  const odd = viewsInPlaceOfTables(db)
  const kysely = new Kysely<DatabaseSchema>({ dialect: new SqliteDialect({ database: db }) })
  const isOurs = odd.length === 0 && isMigrated(db)
  const { since } = trusted
  if (since && !isOurs) throw new Error(NO_STATES)
  const kept = since ? await rowsSince(kysely, since) : isOurs ? await keptRows(kysely) : null
  const watch = new KeptWatch(kept)
  const before = kept?.before ?? undefined
  const walk = recomputer({ before, due: storedStateLeaves(db) })
  const atEnd: DatabaseSnapshot[] = []
  let [last, hashAt]: [number, string | undefined] = [0, undefined]
  const onRow = (row: StoredRow): void => {
    const { stream, seq, row_hash: hash } = row
    watch.see(row)
    if (stream !== MAIN_STREAM) return
    last = seq
    if (seq === noted?.seq) hashAt = hash
  }
  const isOurForm = isOurs && sqliteSchemaProblem(db, expected) === null
  const besides = () => (odd.length > 0 ? unreadSnapshot(odd) : readSnapshot(db, expected, at))
  const newest = isOurForm ? newestSeq(db) : 0
  async function* read(): AsyncGenerator<StoredRow | DamagedRow | readonly StoredRow[]> {
    const after = kept?.after ?? null
    const last = isOurForm ? yield* rowPages(db, after, newest) : after
    yield* liveRows(db, () => atEnd.push(besides()), isOurForm ? leafRowsAfter : rowsAfter, last)
  }
  const rows = shown(read(), Math.max(0, newest - (kept?.after ?? 0)))
  // Before the rows too: all sealed rows are there.
  const start = kept ? await treeStart(kysely, kept.size) : undefined
  const stored = odd.length > 0 ? null : sqliteStoredLog(db, start)
  const tree = stored || !isEmptyLogTrust(trusted) ? inspectTree(stored, trusted) : undefined
  const inspection = await inspectRows(rows, { ...chainStartOf(kept), onRow, walk, tree })
  const { verdict } = inspection
  // After a bad row neither the tables nor the head say anything more.
  const [beside = odd.length > 0 ? unreadSnapshot(odd) : schemaOnlySnapshot(db, expected)] = atEnd
  const head = verdict.ok ? headProblem(noted, last, hashAt) : null
  const replay = verdict.ok && !(kept && !before) ? walk.replay : null
  const { findings, notes } = comparedTables(replay, beside.tables, verdict.rows, at)
  const other = head?.kind === 'other' ? [head.problem] : []
  return {
    ...inspection,
    findings: [
      ...inspection.findings,
      ...(beside.schema === null ? [] : [beside.schema]),
      ...findings,
      ...(verdict.ok ? watch.findings() : []),
      ...other,
    ],
    notes: [...watch.notes(since), ...notes],
    cutShort: head?.kind === 'ahead' ? head.problem : null,
  }
}

/** The tables next to the rows, at the instant of the last row. */
interface DatabaseSnapshot {
  readonly schema: string | null
  /** Null if the database is not of this version of the service. */
  readonly tables: AuthorityTables | null
}

function readSnapshot(db: SQLite.Database, expected: AuditSchema, at: number): DatabaseSnapshot {
  if (!isMigrated(db)) return { schema: null, tables: null }
  return { ...schemaOnlySnapshot(db, expected), tables: readAuthorityTables(db, at) }
}

/** No table is read if a view is in its place: a view says what its maker likes, and may have no end. */
const unreadSnapshot = (odd: readonly string[]): DatabaseSnapshot => ({
  schema: `no table is compared, because there is a view in the place of one: ${odd.join(', ')}`,
  tables: null,
})

// If a page of the file cannot be read, the tables may be on it.
function schemaOnlySnapshot(db: SQLite.Database, expected: AuditSchema): DatabaseSnapshot {
  const schema = isMigrated(db) ? sqliteSchemaProblem(db, expected) : null
  return { schema, tables: null }
}
