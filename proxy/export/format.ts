import { setImmediate as nextTurn } from 'node:timers/promises'
import { type LedgerLine, rowOfLine } from '../../db/ledger/cursors/line.ts'
import { compileGlob } from '../../db/support/glob.ts'
import { ocsfEvent } from './ocsf/event.ts'
import type { SinkOptions } from './options.ts'
import type { SinkPage } from './sink.ts'

/** The time for which rows are written in one turn of the loop. ms. */
const SLICE_MS = 4
const ROWS_BETWEEN_LOOKS = 16

// The first member in the order of RFC 8785.
const ACTION = /^\{"action":"([A-Za-z_.]+)"/

/** The action of a row. */
export const actionOf = ({ line }: LedgerLine): string => ACTION.exec(line)?.[1] ?? '-'

/** Makes the function that takes the rows of a page that a sink wants, and writes them in its format. */
export function pageWriter({
  format,
  actions,
}: Pick<SinkOptions, 'format' | 'actions'>): (page: readonly LedgerLine[]) => Promise<SinkPage> {
  const patterns = actions?.map(compileGlob)
  const isWanted = (row: LedgerLine): boolean => patterns?.some((fits) => fits(actionOf(row))) ?? true
  return async (page) => {
    const rows = page.filter(isWanted)
    if (format === 'ndjson') return { rows, lines: rows.map(({ line }) => line) }
    const lines: string[] = []
    let since = performance.now()
    for (const row of rows) {
      lines.push(JSON.stringify(ocsfEvent(rowOfLine(row))))
      if (lines.length % ROWS_BETWEEN_LOOKS !== 0 || performance.now() - since < SLICE_MS) continue
      await nextTurn()
      since = performance.now()
    }
    return { rows, lines }
  }
}
