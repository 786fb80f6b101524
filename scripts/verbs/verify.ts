import { closeSync, createReadStream, openSync, readSync } from 'node:fs'
import type { Recomputed } from '../../db/audit/authority/recompute.ts'
import { exportedRows, NotAnExport } from '../../db/audit/export.ts'
import { exitCodeOf, type Inspection, inspectRows, type Rows } from '../../db/audit/inspect.ts'
import type { StoredRow } from '../../db/audit/leaf.ts'
import type { BadRow, Damaged } from '../../db/audit/verify.ts'
import { locationOf } from '../../db/engine.ts'
import { inspectPostgres } from '../../db/postgres/ledger/inspect.ts'
import { inspectDatabase } from '../../db/sqlite/ledger/inspect.ts'
import { verbOf, WrongUsage } from '../command.ts'
import { linesOf } from '../lines.ts'

const UNREADABLE = 9
const PROGRESS_ROWS = 50_000

export const verb = verbOf({
  name: 'sallyport verify',
  takes: 'FILE|URL',
  make: 'make verify-audit [FILE=data/sallyport.db]',
  about: `Verifies the audit ledger offline. FILE is the SQLite database (only read, also while the gateway runs) or
an NDJSON export; - reads an export from standard input. URL is sqlite:PATH or postgres://…. Of a database it also recomputes
every decision, and of a SQLite one compares the tables beside the ledger with what the ledger says.`,
  options: {
    authority: { type: 'boolean', description: 'recompute every decision of an export too' },
    json: { type: 'boolean', description: 'print what was found as one JSON object' },
  },
  notes: `Exit code, the first that fits: 9 not a ledger, or not readable; 2 a row was changed, is missing or is there
twice, or schema or tables are not what they must be; 3 is kept for trees and signatures; 4 rows are
missing at the end; 5 a decision does not follow from what the rows before it say; 0 whole.
A row is named as stream:seq. A tail that was cut off or written anew, with the file <database>-head, can only
be seen against something kept elsewhere: an export, or a receipt.`,
  failing: { as: 'verify', usage: UNREADABLE, failed: UNREADABLE },
  run: async ({ authority = false, json = false }, [source, ...rest]) => {
    if (source === undefined || rest.length > 0) throw new WrongUsage('say one file')
    const inspection = await inspect(source, authority)
    if (json) process.stdout.write(`${JSON.stringify(asJson(inspection))}\n`)
    else report(inspection)
    return exitCodeOf(inspection)
  },
})

async function inspect(source: string, authority: boolean): Promise<Inspection> {
  const location = locationOf(source)
  if (location.engine === 'postgres') return inspectPostgres(location.url, shown)
  const { file } = location
  if (file !== '-' && isSqlite(file)) return inspectDatabase(file, Date.now(), shown)
  const rows = exportedRows(linesOf(file === '-' ? process.stdin : createReadStream(file)))
  try {
    return await inspectRows(shown(rows), { authority })
  } catch (error) {
    if (!(error instanceof NotAnExport)) throw error
    throw new Error(`this is not an audit export: ${error.message}`, { cause: error })
  }
}

function isSqlite(file: string): boolean {
  const start = Buffer.alloc(16)
  const fd = openSync(file, 'r')
  readSync(fd, start)
  closeSync(fd)
  return start.toString('latin1') === 'SQLite format 3\0'
}

const shown = (rows: Rows): Rows => (process.stderr.isTTY ? withProgress(rows) : rows)

async function* withProgress(rows: Rows): AsyncGenerator<StoredRow | Damaged> {
  let count = 0
  for await (const row of rows) {
    count += 1
    if (count % PROGRESS_ROWS === 0) process.stderr.write(`\r${count.toLocaleString('en')} rows`)
    yield row
  }
  process.stderr.write('\r\u001b[K')
}

function report({ verdict, findings, cutShort, notes, authority }: Inspection): void {
  const { rows, streams, first_bad: bad, open_decisions: open } = verdict
  const lines = findings.map((finding) => `BAD: ${finding}`)
  if (bad) lines.unshift(`BAD: ${problemOf(bad)}; ${rows} rows before it are whole`)
  if (cutShort !== null) lines.push(`CUT SHORT: ${cutShort}`)
  const counted = `${rows} rows in ${streams} ${streams === 1 ? 'stream' : 'streams'}`
  if (!bad) lines.push(`${lines.length === 0 ? 'whole' : 'rows that follow each other'}: ${counted}`)
  if (open > 0) lines.push(`${open} allowed decisions have no outcome (yet)`)
  if (authority) lines.push(...authorityLines(authority))
  process.stdout.write(`${[...lines, ...notes].join('\n')}\n`)
}

const problemOf = ({ stream, seq, problem }: BadRow): string => `row ${stream}:${seq} ${problem}`

function authorityLines(found: Recomputed): readonly string[] {
  const why = Object.entries(found.not_recomputable).toSorted(([one], [other]) => (one < other ? -1 : 1))
  const skipped = why.reduce((sum, [, count]) => sum + count, 0)
  const because = why.map(([text, count]) => `${count} ${text}`).join(', ')
  const counts = [
    `decisions recomputed ${found.recomputed}`,
    `disagree ${found.disagree}`,
    `not recomputable ${skipped}${skipped > 0 ? ` (why: ${because})` : ''}`,
    `allowed without outcome ${found.allowed_without_outcome}`,
    `outcomes without a decision ${found.outcomes_without_decision}`,
  ]
  const { problems } = found
  const total = found.disagree + found.allowed_without_outcome + found.outcomes_without_decision
  const more = total > problems.length ? [`and ${total - problems.length} more`] : []
  return [counts.join(', '), ...problems.map((bad) => `DISAGREES: ${problemOf(bad)}`), ...more]
}

function asJson({ verdict, findings, cutShort, notes, authority }: Inspection): object {
  return {
    ...verdict,
    ...(findings.length > 0 && { findings }),
    ...(cutShort !== null && { cut_short: cutShort }),
    ...(notes.length > 0 && { notes }),
    ...(authority && { authority }),
  }
}
