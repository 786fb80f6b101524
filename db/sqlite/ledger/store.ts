import { statSync } from 'node:fs'
import SQLite from 'better-sqlite3'
import type { SealedRow } from '../../ledger/record/entry.ts'
import type { LedgerWork, OpenDecision, WorkResult } from '../../ledger/record/writer.ts'
import { chainVerifier } from '../../ledger/verify/verify.ts'
import { lowerPriorityOnOneCore } from '../../support/give-way.ts'
import { batchWriter } from './batch.ts'
import { sqliteSchemaProblem } from './form/schema.ts'
import { headPath, headProblem, openHeadFile, readHead } from './head-file.ts'
import { acquireLease, isTransientSqliteError } from './lease.ts'
import type { WriterOptions } from './packing.ts'
import { lastRows } from './rows.ts'

/**
 * Reads allowed decisions without outcome up to row `upTo`, since the last `service.started`; none if the
 * service stopped in order: a drain writes every outcome first.
 */
function readOpenDecisions(db: SQLite.Database, upTo: number): readonly OpenDecision[] {
  const last = db
    .prepare<[number], { action: string }>('select action from audit_rows where seq = ?')
    .get(upTo)
  if (!last || last.action === 'service.stopped') return []
  const start = lastStart(db, upTo)
  const question = upTo - start > upTo / MERGE_SPEED ? BY_MERGE : BY_LOOKUP
  return db.prepare<[number, number], OpenDecision>(question).all(start, upTo)
}

function lastStart(db: SQLite.Database, upTo: number): number {
  const found = db
    .prepare<[number], { seq: number | null }>(
      `select max(seq) as seq from audit_rows indexed by audit_rows_action
       where action = 'service.started' and ${IN_THE_INDEX} and seq <= ?`,
    )
    .get(upTo)
  return found?.seq ?? 0
}

// SQLite uses a partial index only if the query repeats its condition.
const IN_THE_INDEX = `action not in ('egress_llm_chat', 'mcp_tools_call', 'mcp_tools_list')`

// Measured on a million rows: 1.3 µs per row since the start to look its outcome up, 0.11 µs per row of the
// whole ledger to merge two runs over the index.
const MERGE_SPEED = 12

const DECISION = `seq > ? and seq <= ? and status = 'allowed' and request_id is not null`

const OUTCOME = `status in ('success', 'error', 'truncated', 'unknown')`

const ROWS = `select request_id, principal_id, principal_type, action, tool, model, provider, cert_thumbprint,
  dpop_jkt, detail from audit_log`

const BY_LOOKUP = `${ROWS} where seq in (
    select seq from audit_rows as decision where ${DECISION}
      and not exists (select 1 from audit_rows as outcome where outcome.request_id = decision.request_id and outcome.${OUTCOME}))
  order by seq`

const BY_MERGE = `${ROWS} where seq in (
    select seq from audit_rows indexed by audit_rows_request where ${DECISION}
      and request_id in (
        select request_id from audit_rows indexed by audit_rows_request where status = 'allowed' and request_id is not null
        except select request_id from audit_rows indexed by audit_rows_request where ${OUTCOME}))
  order by seq`

/** Notices that the file under an open connection is no longer the one at its path (docs/threats.md#f-06). */
interface FileWatch {
  /** Throws if the database or its write-ahead log was deleted or replaced since it was first seen. */
  assertSame(): void
}

function fileWatch(file: string): FileWatch {
  const seen = new Map<string, string>()
  function assertSame(): void {
    for (const path of [file, `${file}-wal`]) {
      const now = identity(path)
      const before = seen.get(path) ?? now
      if (now === null || now !== before)
        throw new Error(`${path} was deleted or replaced while it was being written`)
      seen.set(path, now)
    }
  }
  assertSame()
  return { assertSame }
}

function identity(path: string): string | null {
  const stat = statSync(path, { throwIfNoEntry: false })
  return stat ? `${stat.dev}:${stat.ino}` : null
}

/** The ledger's own connection to the database: the only one that writes. Runs in the writer's thread. */
export interface LedgerStore {
  readonly head: SealedRow | null
  write(batch: readonly LedgerWork[]): readonly WorkResult[]
  /** Moves the write-ahead log into the database once it has grown. Call it when the batch was answered. */
  checkpoint(): void
  openDecisions(): readonly OpenDecision[]
  /** Returns whether the store may be used after this error. */
  isPassing(error: unknown): boolean
  close(): void
}

const BUSY_TIMEOUT_MS = 250
const TAIL = 1_000

/**
 * Opens and checks schema, tail, and the noted head. Throws one sentence if the ledger must not be written.
 */
export function openStore({ file, schema }: WriterOptions): LedgerStore {
  const lease = acquireLease(file)
  const db = connect(file)
  const problem = sqliteSchemaProblem(db, schema) ?? tailProblem(db) ?? cutProblem(db, file)
  if (problem !== null) throw new Error(problem)
  const writer = batchWriter(db)
  const heads = openHeadFile(file)
  // Also if the file was not there: an earlier version of the service wrote none.
  if (writer.head) heads.note(writer.head)
  const watch = fileWatch(file)
  const checkpoint = checkpointer(db)
  const openedAt = writer.head?.seq ?? 0
  // Only now: the boot waits for everything above.
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

// Not db/sqlite/database.ts: it opens the file alongside SQLite, and closing that drops every lock this
// process has on it.
function connect(file: string): SQLite.Database {
  const db = new SQLite(file, { timeout: BUSY_TIMEOUT_MS, fileMustExist: true })
  db.pragma('journal_mode = WAL')
  db.pragma('synchronous = FULL')
  db.pragma('foreign_keys = ON')
  db.pragma('recursive_triggers = ON')
  db.pragma('trusted_schema = OFF')
  // Erased bytes are overwritten, not only forgotten (docs/ledger.md#erasure).
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

// 16 MiB. The pages at the ends of the indexes are written again and again: a longer log copies each one
// once.
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
