import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import SQLite from 'better-sqlite3'
import type { Test } from 'tap'
import { AuthorityChanges } from '../../../db/authority-moves.ts'
import type { Database } from '../../../db/database.ts'
import { openDatabase } from '../../../db/engine.ts'
import { draftOf, leafDetailOf } from '../../../db/ledger/record/draft.ts'
import type { LedgerEntry } from '../../../db/ledger/record/entry.ts'
import { assembleLeaf, hashOf, MAIN_STREAM, type StoredRow } from '../../../db/ledger/record/leaf.ts'
import { type Ledger, type LedgerOptions, openLedger } from '../../../db/ledger/record/ledger.ts'
import type { LedgerVerdict } from '../../../db/ledger/verify/verify.ts'
import { SQLITE_STORED_COLUMNS } from '../../../db/sqlite/ledger/form/columns.ts'
import { storedRows } from '../../../db/sqlite/ledger/rows.ts'
import { openSqliteWriter } from '../../../db/sqlite/ledger/thread.ts'
import { verifyRows } from './row-by-row.ts'

export const VERSION = '0.6.4'
export const ORIGIN = { stream: MAIN_STREAM, version: VERSION }
export const AT = Date.UTC(2026, 0, 2, 3, 4, 5, 6)

/** A migrated database in a directory of its test. */
export async function scratchDatabase(directory: string): Promise<string> {
  const file = join(directory, 'sallyport.db')
  const database = await openDatabase(`sqlite:${file}`)
  await database.close()
  return file
}

/** Opens a database to read it. It is closed with the test. */
export async function reader(t: Pick<Test, 'teardown'>, file: string): Promise<Database> {
  const database = await openDatabase(`sqlite:${file}`)
  t.teardown(database.close)
  return database
}

export const open = (file: string, options: Partial<LedgerOptions> = {}): Promise<Ledger> =>
  openLedger({
    database: { openWriter: () => openSqliteWriter(file), authority: new AuthorityChanges() },
    version: VERSION,
    ...options,
  })

export function entry(values: Partial<LedgerEntry> = {}): LedgerEntry {
  return {
    at: AT,
    request_id: 'req_1',
    principal_id: 'acme::bot',
    principal_type: 'agent',
    action: 'egress_llm_chat',
    status: 'allowed',
    tool: null,
    model: 'gpt-5',
    provider: null,
    cert_thumbprint: 'ab'.repeat(32),
    dpop_jkt: null,
    detail: { body_bytes: 12 },
    config_digest: 'cd'.repeat(32),
    ...values,
  }
}

/** The row that the writer makes of an entry. `prevHash`: the hash of the row before it. */
export function rowOf(made: LedgerEntry, seq: number, prevHash: string): StoredRow {
  const leaf = assembleLeaf(draftOf(made, ORIGIN), prevHash, seq)
  const { v: _v, ...fields } = JSON.parse(leaf)
  return { ...fields, detail: leafDetailOf(leaf), row_hash: hashOf(leaf), leaf }
}

/** `count` calls, each with its decision and its outcome, one of eight through the MCP path. */
export async function appendCalls(ledger: Ledger, count: number, from = 0): Promise<void> {
  const calls = Array.from({ length: count }, (_, index) => from + index)
  await Promise.all(calls.map((call) => appendCall(ledger, call)))
}

async function appendCall(ledger: Ledger, call: number): Promise<void> {
  const action = call % 8 === 0 ? 'mcp_tools_call' : 'egress_llm_chat'
  const common = { at: AT + call, request_id: `req_${call}`, action }
  await ledger.commit({ entries: [entry({ ...common, detail: { path: '/é"\u0001', body_bytes: call } })] })
  await ledger.commit({ entries: [entry({ ...common, status: 'success', provider: 'openai', detail: {} })] })
}

/** Runs `work` on a connection of its own, as any tool on the machine could. */
export function withRaw<T>(file: string, work: (db: SQLite.Database) => T): T {
  const db = new SQLite(file)
  try {
    return work(db)
  } finally {
    db.close()
  }
}

/** The table, as rows of before 0097 were put into it: with a leaf, which has all other columns. */
export const WHOLE_LEAVES = `audit_rows (${SQLITE_STORED_COLUMNS.join(', ')})`

/** Puts a row into the table as it is, its other columns in the leaf. */
export const INSERT_ROW = `insert into ${WHOLE_LEAVES} values (${SQLITE_STORED_COLUMNS.map((name) => `@${name}`).join(', ')})`

export const rowsOf = (file: string): readonly StoredRow[] =>
  withRaw(file, (db) => db.prepare<[], StoredRow>('select * from audit_log order by seq').all())

export async function verifyFile(file: string): Promise<LedgerVerdict> {
  const db = new SQLite(file, { readonly: true })
  try {
    return await verifyRows(storedRows(db))
  } finally {
    db.close()
  }
}

/**
 * How many transactions a write-ahead log holds. A frame that ends one says how many pages the database has
 * then; the others say 0.
 */
export function commitsInLog(path: string): number {
  const log = readFileSync(path)
  const frame = 24 + log.readUInt32BE(8)
  let commits = 0
  for (let at = 32; at + frame <= log.length; at += frame) {
    if (log.readUInt32BE(at + 4) > 0) commits += 1
  }
  return commits
}
