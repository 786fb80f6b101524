import { statfsSync } from 'node:fs'
import { dirname } from 'node:path'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type SQLite from 'better-sqlite3'
import { MAIN_STREAM, type StoredRow } from '../../../ledger/record/leaf.ts'
import { type ChainVerifier, chainVerifier } from '../../../ledger/verify/verify.ts'
import { acquireLease } from '../lease.ts'
import { rowsAfter } from '../rows.ts'
import { SQLITE_STORED_COLUMNS } from './columns.ts'
import { COPY_TABLE, CREATE_COPY_TABLE } from './table.ts'

/** Told how many rows of a ledger are copied, of how many, whenever a part of them is on the disk. */
export type OnCopied = (rows: number, of: number) => void

/**
 * Migrates a database whose ledger may have the form of before 0051. Its rows are verified and copied in
 * parts, a transaction each; the migration compares the copy and puts it in place, in one transaction. Until
 * then the ledger is as it was, and the next start goes on. Holds the lease. Throws one sentence, the ledger
 * untouched, if it does not verify, the disk has no room, or another process writes it.
 */
export async function migrateLedger(
  db: SQLite.Database,
  file: string,
  migrate: () => Promise<void>,
  onCopied: OnCopied,
): Promise<void> {
  if (!hasFormerRows(db)) return migrate()
  const lease = acquireLease(file)
  try {
    // SQLite's own checkpoints swallow a failed fsync.
    db.pragma('wal_autocheckpoint = 0')
    await copyRows(db, file, onCopied)
    await migrate()
    db.pragma('wal_checkpoint(passive)')
  } finally {
    lease.close()
  }
}

/** Rows that are copied in one transaction. */
const PART = 2_000

async function copyRows(db: SQLite.Database, file: string, onCopied: OnCopied): Promise<void> {
  const { chain, last, place } = copyPosition(db)
  const of = db.prepare<[], number>('select max(seq) from audit_log').pluck().get() ?? 0
  assertRoom(db, file, of - last)
  if (last === 0) db.exec(`drop table if exists ${COPY_TABLE}; ${CREATE_COPY_TABLE}`)
  const store = copyInserter(db)
  for (const part of partsOf(rowsAfter(db, place))) {
    for (const row of part) assertSound(chain, row)
    store(part)
    db.pragma('wal_checkpoint(passive)')
    onCopied(part.at(-1)?.seq ?? 0, of)
    // For signals.
    await nextTurn()
  }
}

function hasFormerRows(db: SQLite.Database): boolean {
  const table = db.prepare("select 1 from sqlite_schema where name = 'audit_log' and type = 'table'").get()
  return table !== undefined && db.prepare('select 1 from audit_log limit 1').get() !== undefined
}

/** The place to go on copying: `last` is the seq of the last copied row, `place` its rowid in the ledger. */
interface CopyPosition {
  readonly chain: ChainVerifier
  readonly last: number
  readonly place: number | null
}

interface FormerLedgerRow extends StoredRow {
  readonly place: number
}

// A copy that does not end with a row of this ledger is of another one: somebody has put an older database in
// place.
function copyPosition(db: SQLite.Database): CopyPosition {
  const original = lastCopied(db)
  if (!original) return { chain: chainVerifier(), last: 0, place: null }
  const chain = chainVerifier({ tail: true })
  assertSound(chain, original)
  return { chain, last: original.seq, place: original.place }
}

function lastCopied(db: SQLite.Database): FormerLedgerRow | undefined {
  if (!db.prepare('select 1 from sqlite_schema where name = ?').get(COPY_TABLE)) return undefined
  return db
    .prepare<[], FormerLedgerRow>(
      `select audit_log.rowid as place, audit_log.* from ${COPY_TABLE} join audit_log
         on audit_log.stream = '${MAIN_STREAM}' and audit_log.seq = ${COPY_TABLE}.seq and audit_log.leaf = ${COPY_TABLE}.leaf
       where ${COPY_TABLE}.seq = (select max(seq) from ${COPY_TABLE})`,
    )
    .get()
}

function assertSound(chain: ChainVerifier, row: StoredRow): void {
  const sound = chain.add(row)
  const { first_bad: bad } = chain.verdict()
  if (sound && row.stream === MAIN_STREAM) return
  const { stream, seq, problem } = bad ?? { ...row, problem: `is of another stream than ${MAIN_STREAM}` }
  throw new Error(
    `the audit ledger is damaged: row ${stream}:${seq} ${problem}. It was not converted to the form of this version, and stays as it is`,
  )
}

// On the disk a row takes so much alongside its leaf: its other columns, four indexes, and these once more in
// the write-ahead log when they are made.
const BESIDE_LEAF = 700

function assertRoom(db: SQLite.Database, file: string, rows: number): void {
  const leaf = db
    .prepare<[], number>(
      'select avg(octet_length(leaf)) from (select leaf from audit_log order by rowid desc limit 1000)',
    )
    .pluck()
    .get()
  const reused =
    Number(db.pragma('freelist_count', { simple: true })) * Number(db.pragma('page_size', { simple: true }))
  const needed = rows * ((leaf ?? 0) + BESIDE_LEAF) - reused
  const { bavail, bsize } = statfsSync(dirname(file))
  if (needed <= bavail * bsize) return
  throw new Error(
    `converting the audit ledger to a smaller form needs ${mib(needed)} MiB on the disk of ${file}, but only ${mib(bavail * bsize)} MiB are free: make room and start again. Nothing was changed`,
  )
}

const mib = (bytes: number): number => Math.ceil(bytes / 1_048_576)

function copyInserter(db: SQLite.Database): (rows: readonly StoredRow[]) => void {
  const places = SQLITE_STORED_COLUMNS.map((name) => `@${name}`).join(', ')
  const insert = db.prepare<[StoredRow]>(
    `insert into ${COPY_TABLE} (${SQLITE_STORED_COLUMNS.join(', ')}) values (${places})`,
  )
  const insertAll = db.transaction((rows: readonly StoredRow[]) => {
    for (const row of rows) insert.run(row)
  })
  return (rows) => insertAll.immediate(rows)
}

function* partsOf(rows: Iterable<StoredRow>): Generator<readonly StoredRow[]> {
  let part: StoredRow[] = []
  for (const row of rows) {
    part.push(row)
    if (part.length < PART) continue
    yield part
    part = []
  }
  if (part.length > 0) yield part
}
