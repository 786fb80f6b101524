import { closeSync, createReadStream, existsSync, openSync, readFileSync, readSync, statSync } from 'node:fs'
import { isSound, type Recomputed } from '../../db/audit/authority/recompute.ts'
import { exportedRows, NotAnExport } from '../../db/audit/export.ts'
import { exitCodeOf, type Inspection, inspectRows, type Rows } from '../../db/audit/inspect.ts'
import type { StoredRow } from '../../db/audit/leaf.ts'
import { inspectTree, type TreeVerdict } from '../../db/audit/tree/inspect.ts'
import { NOTHING_TRUSTED, type Trusted, type Witnessed } from '../../db/audit/tree/trusted.ts'
import type { BadRow, Damaged } from '../../db/audit/verify.ts'
import { locationOf } from '../../db/engine.ts'
import { inspectPostgres } from '../../db/postgres/ledger/inspect.ts'
import { inspectDatabase } from '../../db/sqlite/ledger/inspect.ts'
import { verbOf, WrongUsage } from '../command.ts'
import { linesOf } from '../lines.ts'
import { type ReceiptVerdict, receiptIn, verifyReceipt } from '../verifying/receipt.ts'
import { TRUSTED, trustedIn } from '../verifying/trusted.ts'

const UNREADABLE = 9
const PROGRESS_ROWS = 50_000

export const verb = verbOf({
  name: 'sallyport verify',
  takes: 'FILE|URL',
  make: 'make verify-audit [FILE=data/sallyport.db]',
  about: `Verifies the audit ledger offline. FILE is the SQLite database (only read, also while the gateway runs),
an NDJSON export (- reads one from standard input), or a receipt. URL is sqlite:PATH or postgres://…. Of a database it also
recomputes every decision, holds the rows against the tree of its checkpoints, and of a SQLite one compares the tables
beside the ledger with what the ledger says.`,
  options: {
    authority: { type: 'boolean', description: 'recompute every decision of an export too' },
    ...TRUSTED,
    body: { type: 'string', value: 'FILE', description: 'the body that a receipt must be about' },
    json: { type: 'boolean', description: 'print what was found as one JSON object' },
  },
  notes: `Exit code, the first that fits: 9 not a ledger, or not readable; 2 a row was changed, is missing or is there
twice, schema or tables are not what they must be, or the body is another; 3 a tile, a checkpoint, a signature or a proof does
not fit; 4 rows are missing at the end; 5 a decision does not follow from what the rows before it say; 0 whole.
A row is named as stream:seq. Without a key, a checkpoint or a witness from elsewhere the best verdict is CONSISTENT, NOT
WITNESSED: who owns the database and its keys can write all of it anew.`,
  failing: { as: 'verify', usage: UNREADABLE, failed: UNREADABLE },
  run: async ({ authority = false, json = false, body, ...given }, [source, ...rest]) => {
    if (source === undefined || rest.length > 0) throw new WrongUsage('say one file')
    const trusted = trustedIn(given)
    const receipt = receiptAt(source)
    if (receipt) {
      const verdict = verifyReceipt(receipt, trusted, body === undefined ? null : readFileSync(body))
      print(json ? [JSON.stringify(verdict)] : receiptLines(verdict))
      return verdict.code
    }
    if (body !== undefined) throw new WrongUsage('--body goes with a receipt')
    const inspection = await inspect(source, authority, trusted)
    print(json ? [JSON.stringify(asJson(inspection))] : linesOfReport(inspection))
    return exitCodeOf(inspection)
  },
})

const print = (lines: readonly string[]): boolean => process.stdout.write(`${lines.join('\n')}\n`)

async function inspect(source: string, authority: boolean, trusted: Trusted): Promise<Inspection> {
  const location = locationOf(source)
  if (location.engine === 'postgres') return inspectPostgres(location.url, shown, trusted)
  const { file } = location
  if (file !== '-' && isSqlite(file)) return inspectDatabase(file, Date.now(), shown, trusted)
  const rows = exportedRows(linesOf(file === '-' ? process.stdin : createReadStream(file)))
  const tree = trusted === NOTHING_TRUSTED ? undefined : inspectTree(null, trusted)
  try {
    return await inspectRows(shown(rows), { authority, tree })
  } catch (error) {
    if (!(error instanceof NotAnExport)) throw error
    throw new Error(`this is not an audit export: ${error.message}`, { cause: error })
  }
}

/** The most that a receipt may have, for a file that may be anything. Bytes. */
const RECEIPT_LIMIT = 4 * 1024 * 1024

function receiptAt(source: string): ReturnType<typeof receiptIn> {
  if (
    source.includes('://') ||
    source === '-' ||
    !existsSync(source) ||
    statSync(source).size > RECEIPT_LIMIT
  )
    return null
  try {
    return receiptIn(JSON.parse(readFileSync(source, 'utf8')))
  } catch (error) {
    if (error instanceof SyntaxError) return null
    throw error
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

function linesOfReport({
  verdict,
  findings,
  cutShort,
  notes,
  authority,
  tree,
}: Inspection): readonly string[] {
  const { rows, streams, first_bad: bad, open_decisions: open } = verdict
  const lines = findings.map((finding) => `BAD: ${finding}`)
  if (bad) lines.unshift(`BAD: ${problemOf(bad)}; ${rows} rows before it are whole`)
  for (const problem of tree?.problems ?? []) lines.push(`BAD: ${problem}`)
  for (const cut of [cutShort, tree?.cutShort ?? null]) if (cut !== null) lines.push(`CUT SHORT: ${cut}`)
  const counted = `${rows} rows in ${streams} ${streams === 1 ? 'stream' : 'streams'}`
  const isWhole = lines.length === 0
  if (!bad) lines.push(`${isWhole ? 'whole' : 'rows that follow each other'}: ${counted}`)
  if (open > 0) lines.push(`${open} allowed decisions have no outcome (yet)`)
  if (tree) lines.push(...treeLines(tree))
  if (authority) lines.push(...authorityLines(authority))
  lines.push(...notes)
  if (!isWhole || (authority && !isSound(authority))) return lines
  return [...lines, conclusion(tree?.vouched ?? false, tree?.witnessed ?? [])]
}

function treeLines({ origin, checkpoints, tiles, sealed, behind }: TreeVerdict): readonly string[] {
  const counted = `${checkpoints} checkpoints and ${tiles} tiles of ${origin} fit, up to ${sealed} rows`
  return behind > 0 ? [counted, `${behind} rows are behind the last checkpoint`] : [counted]
}

/** The last line, where nothing is wrong. */
function conclusion(vouched: boolean, witnessed: readonly Witnessed[]): string {
  const seen = witnessed.map(({ name, at }) => `${name} at ${at}`).join(', ')
  const by = seen === '' ? '' : `, WITNESSED by ${seen}`
  // A witness cosigns any log that it knows: its key does not say which one is meant.
  return vouched ? `VERIFIED${by}` : 'CONSISTENT, NOT WITNESSED'
}

const receiptLines = ({ problem, lines, vouched, witnessed }: ReceiptVerdict): readonly string[] =>
  problem === null ? [...lines, conclusion(vouched, witnessed)] : [...lines, `BAD: ${problem}`]

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

function asJson({ verdict, findings, cutShort, notes, authority, tree }: Inspection): object {
  return {
    ...verdict,
    ...(findings.length > 0 && { findings }),
    ...(cutShort !== null && { cut_short: cutShort }),
    ...(notes.length > 0 && { notes }),
    ...(authority && { authority }),
    ...(tree && { tree }),
  }
}
