import { hashOf, leafOf, type StoredRow } from '../../../../db/ledger/record/leaf.ts'
import type { Chooser, Code } from '../edits/edit.ts'
import { run, type Sealed, unguarded } from './database.ts'

/** What is right where the database is verified by itself, and held against what was kept of it. `any`: it only may not break. */
export interface Right {
  readonly alone: Code | 'any'
  readonly held: Code | 'any'
}

/** One way of editing a database file. Null: there is nothing to do it to. */
export interface DatabaseEdit {
  readonly name: string
  readonly work: (file: string, log: Sealed, choose: Chooser) => Right | null
}

export const both = (code: Code | 'any'): Right => ({ alone: code, held: code })

export const sql = (
  name: string,
  text: string | ((log: Sealed, choose: Chooser) => string),
  right: Right,
): DatabaseEdit => ({
  name,
  work: (file, log, choose) => {
    unguarded(file, () => run(file, typeof text === 'string' ? text : text(log, choose)))
    return right
  },
})

export const seqOf = ({ rows }: Sealed, { below }: Chooser): number => 2 + below(rows.length - 3)

/** The same history from a row on, with other words and fresh hashes. */
export function rewritten(
  rows: readonly StoredRow[],
  from: number,
  change: (row: StoredRow) => Partial<StoredRow>,
): readonly StoredRow[] {
  let previous = rows[from - 1]?.row_hash ?? '0'.repeat(64)
  return rows.map((row, index) => {
    if (index < from) return row
    const made = { ...row, ...(index === from ? change(row) : {}), prev_hash: previous }
    const leaf = leafOf(made)
    previous = hashOf(leaf)
    return { ...made, leaf, row_hash: previous }
  })
}

export const sealedRows = ({ kept }: Sealed): number => kept.at(-1)?.size ?? 0
