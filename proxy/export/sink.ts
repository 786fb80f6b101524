import type { LedgerLine } from '../../db/ledger/cursors/line.ts'

/** The place of a row that may have to be sent again. */
export type DoubtfulPlaces = ReadonlyMap<string, number>

/** A page as it is sent: lines in the sink's format, with the rows that they are of. */
export interface SinkPage {
  /** The rows of the page that the sink is to get. */
  readonly rows: readonly LedgerLine[]
  /** A line of each, without the line feed. */
  readonly lines: readonly string[]
}

/** A place outside of the gateway that gets rows of the ledger. */
export interface ExportSink {
  /** Sends a page. Resolves when the sink has taken it; rejects with one sentence. */
  readonly send: (page: SinkPage, signal: AbortSignal) => Promise<void>
  /** The places from which on rows may be lost, by stream; asked once. Absent: the sink acknowledges. */
  readonly doubtful?: () => DoubtfulPlaces
  readonly close: () => Promise<void>
}
