import { isUtf8 } from 'node:buffer'
import { closeSync, createReadStream, existsSync, openSync, readFileSync, readSync, statSync } from 'node:fs'
import type { DigestedState } from '../../db/ledger/authority/ledger-state.ts'
import type { StoredRow } from '../../db/ledger/record/leaf.ts'
import { inspectTree } from '../../db/ledger/tree/inspect.ts'
import { isEmptyLogTrust, type LogTrust } from '../../db/ledger/tree/trusted.ts'
import { exportedRowsInBlocks, NotAnExport } from '../../db/ledger/verify/export.ts'
import { inspectRows, type LedgerInspection, type RowSource } from '../../db/ledger/verify/inspect.ts'
import { recomputer, statesSaidIn } from '../../db/ledger/verify/recompute.ts'
import type { DamagedRow } from '../../db/ledger/verify/verify.ts'
import { lineBlocks } from '../lines.ts'
import { printProgress } from '../print.ts'
import { inspectPack } from './inspect-pack.ts'
import { ambiguityOf } from './readings.ts'
import { receiptIn } from './receipt.ts'

/** Bytes that are read at once. */
const CHUNK = 256 * 1024

/**
 * Verifies an export (`-`: from standard input) or a pack of evidence. Throws one sentence if the file is
 * neither. `authority`: whether the decisions of an export are recomputed. `before`: the state that an export
 * goes on from, if it does not begin with the first row.
 */
export async function inspectFile(
  file: string,
  authority: boolean,
  trusted: LogTrust,
  shown: ShowRows = showProgress,
  before?: DigestedState,
): Promise<LedgerInspection> {
  if (file !== '-' && isZip(file)) return inspectPack(file, shown, trusted)
  const rows = exportedRowsInBlocks(
    lineBlocks(file === '-' ? process.stdin : createReadStream(file, { highWaterMark: CHUNK })),
  )
  const due = authority && file !== '-' ? await statesSaidIn(lineBlocks(createReadStream(file))) : undefined
  const from = before && (await beginsWithin(file)) ? before : undefined
  const tree = isEmptyLogTrust(trusted) || from ? undefined : inspectTree(null, trusted)
  try {
    return await inspectRows(shown(rows), {
      authority: authority || from !== undefined,
      tree,
      before: from,
      walk: recomputer({ before: from, ...(due && { due }) }),
    })
  } catch (error) {
    if (!(error instanceof NotAnExport)) throw error
    throw new Error(`this is not an audit export: ${error.message}`, { cause: error })
  }
}

export type ShowRows = (rows: RowSource) => RowSource

/** Tells whether the first row of an export is not the first of its stream. */
async function beginsWithin(file: string): Promise<boolean> {
  for await (const row of exportedRowsInBlocks(lineBlocks(createReadStream(file, { highWaterMark: CHUNK }))))
    return !('damaged' in row) && row.seq > 1
  return false
}

/** The most that a receipt may have, for a file that may be anything. Bytes. */
const RECEIPT_LIMIT = 4 * 1024 * 1024

/** The receipt that a file is; null if it is none. Throws one sentence if a member stands twice in it. */
export function receiptAt(source: string): ReturnType<typeof receiptIn> {
  if (
    source.includes('://') ||
    source === '-' ||
    !existsSync(source) ||
    statSync(source).size > RECEIPT_LIMIT
  )
    return null
  const bytes = readFileSync(source)
  if (!isUtf8(bytes)) return null
  const text = bytes.toString()
  const receipt = receiptIn(parseOrNull(text))
  if (receipt && ambiguityOf(text))
    throw new Error('the receipt names a member twice in one object, or is too deep')
  return receipt
}

function parseOrNull(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    if (error instanceof SyntaxError) return null
    throw error
  }
}

export const isSqlite = (file: string): boolean => startOf(file) === 'SQLite format 3\0'

const isZip = (file: string): boolean => /^PK[\x03\x05]/.test(startOf(file))

/** The first 16 bytes of a file. */
function startOf(file: string): string {
  const start = Buffer.alloc(16)
  const fd = openSync(file, 'r')
  readSync(fd, start)
  closeSync(fd)
  return start.toString('latin1')
}

const PROGRESS_ROWS = 50_000

/** The same rows, with progress on a terminal. */
export const showProgress: ShowRows = (rows) => (process.stderr.isTTY ? withProgress(rows) : rows)

async function* withProgress(rows: RowSource): AsyncGenerator<StoredRow | DamagedRow> {
  let count = 0
  for await (const row of rows) {
    count += 1
    if (count % PROGRESS_ROWS === 0) printProgress(`${count.toLocaleString('en')} rows`)
    yield row
  }
  printProgress(null)
}
