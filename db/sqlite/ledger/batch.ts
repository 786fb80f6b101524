import type SQLite from 'better-sqlite3'
import { LRUCache } from 'lru-cache'
import { MeterBook, withUsage } from '../../ledger/meters/meter-book.ts'
import { leafDetailOf, placeFiller, type RowDraft } from '../../ledger/record/draft.ts'
import type { SealedRow } from '../../ledger/record/entry.ts'
import { assembleLeaf, GENESIS_HASH, hashOf, MAIN_STREAM } from '../../ledger/record/leaf.ts'
import type { LedgerWork, WorkResult } from '../../ledger/record/writer.ts'
import { messageOf } from '../../support/error-message.ts'
import type { LedgerStatement, RowAssertion } from '../../support/statement.ts'
import { sqliteStatementRefusal } from './lease.ts'
import { meterTable } from './meters.ts'

interface SqliteChainHead {
  readonly seq: number
  readonly hash: string
}

/** Writes batches on one connection and owns the head of the chain. Everything is prepared once. */
export interface BatchWriter {
  readonly head: SealedRow | null
  /**
   * Writes a batch in one transaction: each unit whole or refused alone. It is on the disk when this returns.
   * Throws if nothing was stored, also if the head is not the one we left there.
   */
  write(batch: readonly LedgerWork[]): readonly WorkResult[]
}

const CACHE_MAX = 256

export function batchWriter(db: SQLite.Database): BatchWriter {
  const run = (sql: string) => db.prepare<[]>(sql)
  const [begin, commit, rollback] = [run('begin immediate'), run('commit'), run('rollback')]
  const [savepoint, undo, release] = [run('savepoint unit'), run('rollback to unit'), run('release unit')]
  const insert = db.prepare<InsertParameters>(INSERT)
  const statements = statementCache(db)
  const storedHead = headReader(db)
  const stored = meterTable(db)
  // Owned by write(): the end of the last committed batch. A crash loses nothing: it is read from the table
  // at open.
  let head = storedHead()

  function write(batch: readonly LedgerWork[]): readonly WorkResult[] {
    begin.run()
    try {
      assertHead()
      let tip = head
      const meters = new MeterBook(stored.read)
      const results = batch.map((work) => {
        const [result, next] = writeUnit(work, tip, meters)
        tip = next
        return result
      })
      for (const [key, state] of meters.changed()) stored.write(key, state)
      commit.run()
      head = tip
      return results
    } finally {
      if (db.inTransaction) rollback.run()
    }
  }

  function writeUnit(
    work: LedgerWork,
    tip: SqliteChainHead,
    meters: MeterBook,
  ): readonly [WorkResult, SqliteChainHead] {
    const { assertions, reservations, settlements } = work
    const refused =
      attempt(() => firstStale(assertions)) ?? misfit(meters, reservations) ?? runStatements(work)
    if (refused) return [refused, tip]
    return append(work, tip, meters.apply(reservations, settlements))
  }

  function runStatements({ statements }: LedgerWork): WorkResult | null {
    if (statements.length === 0) return null
    savepoint.run()
    const refused = attempt(() => runAll(statements))
    if (refused) undo.run()
    // Before the rows: writes under a savepoint are kept twice, and rows are never taken back alone.
    release.run()
    return refused
  }

  function firstStale(assertions: readonly RowAssertion[]): WorkResult | null {
    for (const { sql, parameters } of assertions) {
      if (statements(sql).get(...parameters) === undefined)
        return { refused: 'stale', message: `"${sql}" finds no row` }
    }
    return null
  }

  function runAll(all: readonly LedgerStatement[]): WorkResult | null {
    for (const statement of all) {
      const { changes } = statements(statement.sql).run(...statement.parameters)
      if (changes !== (statement.changes ?? changes)) return conflict(statement, changes)
    }
    return null
  }

  /** Returns why a unit is refused by its own fault, or null. */
  function attempt(work: () => WorkResult | null): WorkResult | null {
    try {
      return work()
    } catch (error) {
      const refused = sqliteStatementRefusal(error)
      // Some errors end the transaction, and then there is nothing to go back to.
      if (refused === null || !db.inTransaction) throw error
      return { refused, message: messageOf(error) }
    }
  }

  function append(
    { drafts, reservations }: LedgerWork,
    from: SqliteChainHead,
    numbers: readonly number[],
  ): readonly [WorkResult, SqliteChainHead] {
    let tip = from
    const filled = numbers.length === 0 ? null : placeFiller(numbers)
    const sealed = drafts.map((draft) => {
      tip = appendOne(filled ? filled(draft) : draft, tip)
      return { stream: MAIN_STREAM, seq: tip.seq, hash: tip.hash }
    })
    return [{ sealed: withUsage(sealed, numbers, reservations.length) }, tip]
  }

  function appendOne(draft: RowDraft, tip: SqliteChainHead): SqliteChainHead {
    const seq = tip.seq + 1
    const leaf = assembleLeaf(draft, tip.hash, seq)
    const hash = hashOf(leaf)
    insert.run(...insertParameters(draft, tip.hash, [seq, hash, leafDetailOf(leaf)]))
    return { seq, hash }
  }

  function assertHead(): void {
    const found = storedHead()
    if (found.seq !== head.seq) {
      throw new Error(`audit head moved from ${head.seq} to ${found.seq}: another writer holds this chain`)
    }
    if (found.hash !== head.hash)
      throw new Error(`audit row ${MAIN_STREAM}:${head.seq} was changed under its writer`)
  }

  return {
    get head() {
      return head.seq === 0 ? null : { stream: MAIN_STREAM, ...head }
    },
    write,
  }
}

function misfit(meters: MeterBook, reservations: LedgerWork['reservations']): WorkResult | null {
  const over = meters.misfit(reservations)
  return over && { refused: 'over', over }
}

function conflict({ sql, changes }: LedgerStatement, changed: number): WorkResult {
  return { refused: 'conflict', message: `"${sql}" changed ${changed} rows, not ${changes}` }
}

function headReader(db: SQLite.Database): () => SqliteChainHead {
  const last = db.prepare<[], SqliteChainHead>(
    'select seq, row_hash as hash from audit_rows order by seq desc limit 1',
  )
  return () => last.get() ?? { seq: 0, hash: GENESIS_HASH }
}

function statementCache(db: SQLite.Database): (sql: string) => SQLite.Statement<unknown[]> {
  const cache = new LRUCache<string, SQLite.Statement<unknown[]>>({ max: CACHE_MAX })
  return (sql) => {
    const known = cache.get(sql)
    if (known) return known
    const statement = db.prepare<unknown[]>(sql)
    cache.set(sql, statement)
    return statement
  }
}

// In the order of insertParameters.
const INSERT = `insert into audit_rows (seq, recorded_at, request_id, principal_id, action, status, row_hash, leaf,
  principal_type, tool, model, provider, cert_thumbprint, dpop_jkt, detail, config_digest, version, prev_hash)
  values (?, ?, ?, ?, ?, ?, ?, '', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

type InsertParameters = (string | number | null)[]

/** `made`: by its place in the chain. */
function insertParameters(
  draft: RowDraft,
  previous: string,
  [seq, hash, detail]: readonly [seq: number, hash: string, detail: string],
): InsertParameters {
  const { recorded_at: at, request_id: request, principal_id: principal, action, status } = draft
  const { principal_type: type, tool, model, provider, cert_thumbprint: cert, dpop_jkt: jkt } = draft
  return [
    ...[seq, at, request, principal, action, status, hash],
    ...[type, tool, model, provider, cert, jkt, detail, draft.config_digest, draft.version, previous],
  ]
}
