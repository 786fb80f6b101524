import { closeSync, createReadStream, openSync, readSync } from 'node:fs'
import { exportedRows, NotAnExport } from '../../db/audit/export.ts'
import type { StoredRow } from '../../db/audit/leaf.ts'
import { type Damaged, type Verdict, verify } from '../../db/audit/verify.ts'
import { openReadOnly, storedRows } from '../../db/sqlite/ledger/rows.ts'
import { auditSchemaProblem } from '../../db/sqlite/ledger/schema.ts'
import { expectedAuditSchema } from '../../db/sqlite/ledger/schema-expected.ts'
import { verbOf, WrongUsage } from '../command.ts'
import { linesOf } from '../lines.ts'

const [WHOLE, BAD_ROW, UNREADABLE] = [0, 2, 9]
const PROGRESS_ROWS = 50_000

export const verb = verbOf({
  name: 'sallyport verify-audit',
  takes: 'FILE|-',
  make: 'make verify-audit [FILE=data/sallyport.db]',
  about: `Verifies the audit ledger offline. FILE is the SQLite database (only read, also while the gateway runs)
or an NDJSON export; - reads an export from standard input.`,
  options: { json: { type: 'boolean', description: 'print the verdict as one JSON object' } },
  notes: `Exit code: 0 whole; 2 a row was changed, is missing, or is there twice; 3 and 4 are kept for checkpoints;
9 not an export, or not readable. The first bad row is named as stream:seq.
Rows cut off the end of a chain can only be seen against a checkpoint kept elsewhere.`,
  failing: { as: 'verify-audit', usage: UNREADABLE, failed: UNREADABLE },
  run: async ({ json = false }, [file, ...rest]) => {
    if (file === undefined || rest.length > 0) throw new WrongUsage('say one file')
    const { rows, warning } = await open(file)
    const verdict = await verdictOf(process.stderr.isTTY ? withProgress(rows) : rows)
    report(verdict, warning, json)
    return verdict.ok ? WHOLE : BAD_ROW
  },
})

type Rows = AsyncIterable<StoredRow | Damaged> | Iterable<StoredRow | Damaged>

interface Source {
  readonly rows: Rows
  /** A sentence about what is odd without making a row bad. */
  readonly warning: string | null
}

async function verdictOf(rows: Rows): Promise<Verdict> {
  try {
    return await verify(rows)
  } catch (error) {
    if (!(error instanceof NotAnExport)) throw error
    throw new Error(`this is not an audit export: ${error.message}`, { cause: error })
  }
}

async function open(file: string): Promise<Source> {
  if (file === '-') return { rows: exportedRows(linesOf(process.stdin)), warning: null }
  if (!isSqlite(file)) return { rows: exportedRows(linesOf(createReadStream(file))), warning: null }
  const db = openReadOnly(file)
  return { rows: storedRows(db), warning: auditSchemaProblem(db, await expectedAuditSchema()) }
}

function isSqlite(file: string): boolean {
  const start = Buffer.alloc(16)
  const fd = openSync(file, 'r')
  readSync(fd, start)
  closeSync(fd)
  return start.toString('latin1') === 'SQLite format 3\0'
}

async function* withProgress(rows: Rows): AsyncGenerator<StoredRow | Damaged> {
  let count = 0
  for await (const row of rows) {
    count += 1
    if (count % PROGRESS_ROWS === 0) process.stderr.write(`\r${count.toLocaleString('en')} rows`)
    yield row
  }
  process.stderr.write('\r\u001b[K')
}

function report(verdict: Verdict, warning: string | null, asJson: boolean): void {
  if (asJson) {
    process.stdout.write(`${JSON.stringify({ ...verdict, ...(warning === null ? {} : { warning }) })}\n`)
    return
  }
  const { rows, streams, first_bad: bad, open_decisions: open } = verdict
  if (warning !== null) process.stderr.write(`warning: ${warning}\n`)
  process.stdout.write(
    bad
      ? `BAD: row ${bad.stream}:${bad.seq} ${bad.problem}; ${rows} rows before it are whole\n`
      : `whole: ${rows} rows in ${streams} ${streams === 1 ? 'stream' : 'streams'}\n`,
  )
  if (open > 0) process.stdout.write(`${open} allowed decisions have no outcome (yet)\n`)
}
