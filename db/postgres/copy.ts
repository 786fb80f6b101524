import type SQLite from 'better-sqlite3'
import type { Client } from 'pg'
import { verifyDatabase } from '../ledger/read/read.ts'
import { MAIN_STREAM, type StoredRow } from '../ledger/record/leaf.ts'
import { type ChainVerifier, chainVerifier } from '../ledger/verify/verify.ts'
import { acquireLease } from '../sqlite/ledger/lease.ts'
import { openReadOnly } from '../sqlite/ledger/rows.ts'
import { SQLITE_MIGRATIONS } from '../sqlite/migrations.ts'
import { timestamp } from '../support/statement.ts'
import { writingClient } from './connection.ts'
import { openPostgresDatabase } from './database.ts'
import { storeRowsQuery, storesColumns } from './ledger/columns.ts'
import { placedPages } from './ledger/placed-rows.ts'
import { durabilityProblem } from './ledger/writer.ts'

interface PostgresCopyOptions {
  /** The SQLite database, of which no gateway may run. */
  readonly file: string
  /** The PostgreSQL database, empty or half copied. */
  readonly url: string
  /** Told how many rows of the ledger are copied, of how many. */
  readonly onCopied: (rows: number, of: number) => void
}

const PART = 2_000

/**
 * Copies a deployment from SQLite to PostgreSQL: the ledger part by part, verified, then every other table in
 * one transaction. Goes on where it stopped. Resolves with the number of rows, once the copy verifies.
 * Rejects with one sentence if a gateway runs on the file, its ledger is damaged, or the target holds
 * anything else.
 */
export async function copyToPostgres({ file, url, onCopied }: PostgresCopyOptions): Promise<number> {
  const lease = acquireLease(file)
  const source = openReadOnly(file)
  const client = writingClient(url, 0)
  client.on('error', () => {})
  const target = await openPostgresDatabase(url)
  try {
    assertOfThisVersion(source)
    await client.connect()
    const problem = await durabilityProblem(client)
    if (problem !== null) throw new Error(problem)
    const last = await lastCopiedSeq(client, source)
    const rows = await copyLedger(client, source, last, onCopied)
    await copyTables(client, source)
    const verdict = await verifyDatabase(target.kysely, { pages: placedPages })
    if (verdict.ok && verdict.rows === rows) return rows
    throw new Error(`the copied ledger does not verify: ${JSON.stringify(verdict)}`)
  } finally {
    await client.end()
    await target.close()
    source.close()
    lease.close()
  }
}

function assertOfThisVersion(source: SQLite.Database): void {
  const applied = source.prepare<[], string>('select name from kysely_migration').pluck().all()
  if (applied.length !== Object.keys(SQLITE_MIGRATIONS).length)
    throw new Error(
      'the database is of another version of this service: start this version on it once, and stop it',
    )
  if (source.prepare('select 1 from audit_segments').get())
    throw new Error('rows of the ledger are archived, and what is left of it cannot be copied')
}

async function lastCopiedSeq(client: Client, source: SQLite.Database): Promise<number> {
  const { rows: principals } = await client.query(
    `select 1 from internal_agents union all select 1 from local_user_principals
     union all select 1 from local_workload_principals limit 1`,
  )
  const { rows: others } = await client.query('select 1 from audit_rows where stream <> $1 limit 1', [
    MAIN_STREAM,
  ])
  if (principals.length + others.length > 0)
    throw new Error('the PostgreSQL database is already in use: copy into an empty one')
  const { rows } = await client.query<{ seq: number; hash: string }>(
    'select seq, row_hash as hash from audit_log order by seq desc limit 1',
  )
  const [last] = rows
  if (!last) return 0
  const own = source
    .prepare<[number], string>('select row_hash from audit_log where seq = ?')
    .pluck()
    .get(last.seq)
  if (own === last.hash) return last.seq
  throw new Error('the PostgreSQL database holds the ledger of another deployment: copy into an empty one')
}

async function copyLedger(
  client: Client,
  source: SQLite.Database,
  from: number,
  onCopied: PostgresCopyOptions['onCopied'],
): Promise<number> {
  const of = source.prepare<[], number | null>('select max(seq) from audit_log').pluck().get() ?? 0
  const next = source.prepare<[number, number], StoredRow>(
    'select * from audit_log where seq > ? order by seq limit ?',
  )
  const inColumns = await storesColumns(client)
  const chain = chainVerifier({ tail: from > 0 })
  let last = from
  for (;;) {
    const part = next.all(last, PART)
    for (const row of part) assertSound(chain, row)
    if (part.length > 0) await client.query(storeRowsQuery(part, inColumns))
    last = part.at(-1)?.seq ?? last
    onCopied(last, of)
    if (part.length < PART) return last
  }
}

function assertSound(chain: ChainVerifier, row: StoredRow): void {
  if (chain.add(row)) return
  const { first_bad: bad } = chain.verdict()
  throw new Error(`the audit ledger is damaged: row ${bad?.stream}:${bad?.seq} ${bad?.problem}`)
}

async function copyTables(client: Client, source: SQLite.Database): Promise<void> {
  await client.query('begin')
  for (const table of await copiedTables(client, source)) {
    await client.query(`delete from ${table}`)
    const rows = source.prepare(`select * from ${table}`).all()
    for (let from = 0; from < rows.length; from += PART) {
      const part = JSON.stringify(rows.slice(from, from + PART))
      await client.query(`insert into ${table} select * from json_populate_recordset(null::${table}, $1)`, [
        part,
      ])
    }
  }
  // Its writer is gone: calls that it left open get their outcome from the first gateway that runs.
  await client.query(
    `insert into audit_streams (stream, replica, opened_at) values ($1, 'sqlite', $2) on conflict do nothing`,
    [MAIN_STREAM, timestamp(Date.now())],
  )
  await client.query('commit')
}

/**
 * The tables of both databases, those that others refer to first. Not the ledger's, which are made of its
 * rows, nor those that say what was migrated.
 */
async function copiedTables(client: Client, source: SQLite.Database): Promise<readonly string[]> {
  const there = source
    .prepare<[], string>("select name from sqlite_schema where type = 'table'")
    .pluck()
    .all()
  const { rows } = await client.query<{ name: string }>(
    `select relname as name from pg_class
     where relkind = 'r' and relnamespace = 'public'::regnamespace and relname = any($1) order by oid`,
    [there],
  )
  return rows.flatMap(({ name }) => (/^(audit|kysely|row_counts|spend_counts)/.test(name) ? [] : [name]))
}
