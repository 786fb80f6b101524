import { isObject } from '../../support/json.ts'
import type { AuditRow } from '../read/read.ts'

/** A row as a reader with a cursor gets it. */
export interface LedgerLine {
  readonly stream: string
  readonly seq: number
  /** The line of an export, without the line feed (docs/ledger.md#export). */
  readonly line: string
}

/** Reads a line. Throws one sentence if somebody has spoiled the row. Does NOT compare it with its hash. */
export function rowOfLine({ stream, seq, line }: LedgerLine): AuditRow {
  try {
    const row: unknown = JSON.parse(line)
    // Proven by the writer, if it is JSON: db/ledger/record/draft.ts.
    if (isObject(row) && isObject(row.detail) && typeof row.action === 'string')
      return row as unknown as AuditRow
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
  }
  throw new Error(`the row ${stream}:${seq} is no JSON: verify the ledger`)
}
