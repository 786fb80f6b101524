import { isUtf8 } from 'node:buffer'
import { closeSync, createReadStream, existsSync, openSync, readFileSync, readSync, statSync } from 'node:fs'
import type { DigestedState } from '../../db/ledger/authority/ledger-state.ts'
import { inspectTree } from '../../db/ledger/tree/inspect.ts'
import { isEmptyLogTrust, type LogTrust } from '../../db/ledger/tree/trusted.ts'
import { exportedPages, NotAnExport } from '../../db/ledger/verify/export.ts'
import { inspectRows, type LedgerInspection, type ShowRows } from '../../db/ledger/verify/inspect.ts'
import { recomputer, statesSaidIn } from '../../db/ledger/verify/recompute.ts'
import { lineBlocks } from '../lines.ts'
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
  shown: ShowRows,
  before?: DigestedState,
): Promise<LedgerInspection> {
  if (file !== '-' && isZip(file)) return inspectPack(file, shown, trusted)
  if (trusted.since) throw new Error(NO_TILES)
  let bytes = 0
  async function* blocks(): AsyncGenerator<Buffer> {
    const stream = file === '-' ? process.stdin : createReadStream(file, { highWaterMark: CHUNK })
    for await (const block of lineBlocks(stream)) {
      bytes += block.length
      yield block
    }
  }
  const size = file === '-' ? 0 : statSync(file).size
  const rows = shown(exportedPages(blocks()), (done) => (done * size) / bytes)
  const due = authority && file !== '-' ? await statesSaidIn(createReadStream(file)) : undefined
  const from = before && (await beginsWithin(file)) ? before : undefined
  const tree = isEmptyLogTrust(trusted) || from ? undefined : inspectTree(null, trusted)
  try {
    const found = await inspectRows(rows, {
      authority: authority || from !== undefined,
      tree,
      before: from,
      walk: recomputer({ before: from, ...(due && { due }) }),
    })
    const { rows: whole, first_bad: bad } = found.verdict
    const isCut = !from && whole === 0 && bad?.problem.startsWith('is missing: 0 is followed by')
    return isCut ? { ...found, notes: [BEGINS_WITHIN] } : found
  } catch (error) {
    if (!(error instanceof NotAnExport)) throw error
    throw new Error(`this is not an audit export: ${error.message}`, { cause: error })
  }
}

const BEGINS_WITHIN = `it begins in the middle. Every line of an export is a row, so it holds neither the state nor the tree before the first: \
if those rows are archived, add --archive and their folder, or verify a pack of evidence, which brings both`

const NO_TILES = 'an export has no tiles: what is before the checkpoint must be read. Give it by --checkpoint'

/** Tells whether the first row of an export is not the first of its stream. */
async function beginsWithin(file: string): Promise<boolean> {
  for await (const [row] of exportedPages(lineBlocks(createReadStream(file))))
    return row !== undefined && !('damaged' in row) && row.seq > 1
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
