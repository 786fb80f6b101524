// Reads and verifies rows one after the other, as they are written down: what the product reads in pages must come to
// the same.
import { isUtf8 } from 'node:buffer'
import type { StoredRow } from '../../../db/ledger/record/leaf.ts'
import { type ExportedRow, exportedRow, NotAnExport } from '../../../db/ledger/verify/export.ts'
import { chainVerifier, type DamagedRow, type LedgerVerdict } from '../../../db/ledger/verify/verify.ts'
import { lineBlocks } from '../../../scripts/lines.ts'

/** Verifies whole chains. Stops at the first bad row. */
export async function verifyRows(
  rows: AsyncIterable<StoredRow | DamagedRow> | Iterable<StoredRow | DamagedRow>,
): Promise<LedgerVerdict> {
  const chains = chainVerifier()
  for await (const row of rows) {
    if (!chains.add(row)) break
  }
  return chains.verdict()
}

/** Reads the rows of an export from its lines. Throws {@link NotAnExport} if the first is no row. */
export async function* exportedRows(
  lines: AsyncIterable<string | null>,
): AsyncGenerator<ExportedRow | DamagedRow> {
  let count = 0
  for await (const line of lines) {
    count += 1
    const row = exportedRow(line, count)
    yield row
    if ('damaged' in row) return
  }
  if (count === 0) throw new NotAnExport('there is nothing in it')
}

/**
 * Yields lines without their line feeds, null for one that is not UTF-8. One of 1 MiB or more is null, and
 * the last.
 */
export async function* streamLines(stream: AsyncIterable<Buffer>): AsyncGenerator<string | null> {
  for await (const block of lineBlocks(stream))
    yield* split(block.at(-1) === LF ? block.subarray(0, -1) : block)
}

function* split(block: Buffer): Generator<string | null> {
  if (isUtf8(block)) return yield* block.toString().split('\n')
  for (let from = 0; from <= block.length; ) {
    const lf = block.indexOf(LF, from)
    const line = block.subarray(from, lf < 0 ? block.length : lf)
    yield isUtf8(line) ? line.toString() : null
    if (lf < 0) return
    from = lf + 1
  }
}

const LF = 0x0a
