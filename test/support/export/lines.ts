import type { LedgerLine } from '../../../db/ledger/cursors/line.ts'
import { exportLine } from '../../../db/ledger/record/leaf.ts'
import type { SinkPage } from '../../../proxy/export/sink.ts'
import { entry, rowOf } from '../db/scratch-ledger.ts'

/** Rows of a stream from one seq on, as a reader gets them. */
export const ledgerLines = (
  first: number,
  count: number,
  action = 'egress_llm_chat',
): readonly LedgerLine[] =>
  Array.from({ length: count }, (_, n) => {
    const row = rowOf(entry({ action, detail: { n: first + n } }), first + n, '0'.repeat(64))
    return { stream: row.stream, seq: row.seq, line: exportLine(row) }
  })

export const pageOf = (rows: readonly LedgerLine[]): SinkPage => ({
  rows,
  lines: rows.map(({ line }) => line),
})
