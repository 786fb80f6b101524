import SQLite from 'better-sqlite3'
import type { SealedRow } from '../../ledger/record/entry.ts'
import type { LedgerWork, OpenDecision, WorkResult } from '../../ledger/record/writer.ts'
import { chainVerifier } from '../../ledger/verify/verify.ts'
import { lowerPriorityOnOneCore } from '../../support/give-way.ts'
import { batchWriter } from './batch.ts'
import { isTransientSqliteError } from './errors.ts'
import { fileWatch } from './file-watch.ts'
import { sqliteSchemaProblem } from './form/schema.ts'
import { headPath, headProblem, openHeadFile, readHead } from './head-file.ts'
import { acquireLease } from './lease.ts'
import type { WriterOptions } from './messages.ts'
import { lastRows } from './rows.ts'
import { readOpenDecisions } from './unfinished.ts'

/** The ledger's own connection to the database: the only one that writes. Runs in the writer's thread. */
export interface LedgerStore {
  readonly head: SealedRow | null
  write(batch: readonly LedgerWork[]): readonly WorkResult[]
  /** Moves the write-ahead log into the database once it has grown. Call it when the batch was answered. */
  checkpoint(): void
  /** Reads the decisions that earlier runs have left open. */
  openDecisions(): readonly OpenDecision[]
  /** Returns whether the store may be used after this error. */
  isPassing(error: unknown): boolean
  close(): void
}

const BUSY_TIMEOUT_MS = 250
const TAIL = 1_000

/** Opens and checks: schema, tail, and the head that was noted beside it. Throws one sentence where the ledger must not be written. */
export function openStore({ file, schema }: WriterOptions): LedgerStore {
  const lease = acquireLease(file)
  const db = connect(file)
  const problem = sqliteSchemaProblem(db, schema) ?? tailProblem(db) ?? cutProblem(db, file)
  if (problem !== null) throw new Error(problem)
  const writer = batchWriter(db)
  const heads = openHeadFile(file)
  // Also where the file was not there: an earlier version of the service wrote none.
  if (writer.head) heads.note(writer.head)
  const watch = fileWatch(file)
  const checkpoint = checkpointer(db)
  const openedAt = writer.head?.seq ?? 0
  // Only now: the boot waits for what stands above.
  lowerPriorityOnOneCore()
  return {
    get head() {
      return writer.head
    },
    write: (batch) => {
      const results = writer.write(batch)
      checkpoint.note(batch)
      // After the commit: an answer is given only for rows that are in the file where the next boot will
      // look.
      watch.assertSame()
      if (writer.head) heads.note(writer.head)
      return results
    },
    checkpoint: checkpoint.run,
    openDecisions: () => readOpenDecisions(db, openedAt),
    isPassing: isTransientSqliteError,
    close: () => {
      db.close()
      heads.close()
      lease.close()
    },
  }
}

// Not db/sqlite/open.ts: it opens the file beside SQLite, and closing that drops every lock this process has
// on it.
function connect(file: string): SQLite.Database {
  const db = new SQLite(file, { timeout: BUSY_TIMEOUT_MS, fileMustExist: true })
  db.pragma('journal_mode = WAL')
  db.pragma('synchronous = FULL')
  db.pragma('foreign_keys = ON')
  db.pragma('recursive_triggers = ON')
  db.pragma('trusted_schema = OFF')
  // What is erased is overwritten, not only forgotten (docs/ledger.md#erasure).
  db.pragma('secure_delete = ON')
  // SQLite's own checkpoints swallow a failed fsync; ours are in checkpointer().
  db.pragma('wal_autocheckpoint = 0')
  return db
}

function tailProblem(db: SQLite.Database): string | null {
  const chain = chainVerifier({ tail: true })
  lastRows(db, TAIL).every((row) => chain.add(row))
  const { first_bad: bad } = chain.verdict()
  return bad ? `the audit ledger is damaged: row ${bad.stream}:${bad.seq} ${bad.problem}` : null
}

/** Compares the rows with the head that the last writer noted (docs/ledger.md#head-file). */
function cutProblem(db: SQLite.Database, file: string): string | null {
  const noted = readHead(file)
  const hashAt = db.prepare<[number], string>('select row_hash from audit_rows where seq = ?').pluck()
  const last = db.prepare<[], number | null>('select max(seq) from audit_rows').pluck()
  const found = headProblem(noted, last.get() ?? 0, hashAt.get(noted?.seq ?? 0))
  return (
    found &&
    `the audit ledger is damaged: ${found.problem}. If you have restored a backup on purpose, remove ${headPath(file)} and start again`
  )
}

// 16 MiB. The pages at the ends of the indexes are written again and again: a longer log copies each one once.
const LOG_PAGES = 4_000

// To ask how long the log is takes as long as a row. A write makes ten pages of it at the most, three as a
// rule.
const WRITES_PER_LOOK = 100

interface Checkpointer {
  readonly note: (batch: readonly LedgerWork[]) => void
  readonly run: () => void
}

function checkpointer(db: SQLite.Database): Checkpointer {
  interface State {
    readonly log: number
    readonly checkpointed: number
  }
  const state = db.prepare<[], State>('pragma wal_checkpoint(noop)')
  const move = db.prepare<[], State>('pragma wal_checkpoint(passive)')
  let writes = 0
  const note = (batch: readonly LedgerWork[]): void => {
    for (const { statements, drafts } of batch) writes += statements.length + drafts.length
  }
  const run = (): void => {
    if (writes < WRITES_PER_LOOK) return
    try {
      const { log = 0, checkpointed = 0 } = state.get() ?? {}
      if (log - checkpointed >= LOG_PAGES) move.get()
      writes = 0
    } catch (error) {
      // A full disk keeps the log from moving; it stays whole where it is, and the next batch tries again.
      if (!isTransientSqliteError(error)) throw error
    }
  }
  return { note, run }
}
