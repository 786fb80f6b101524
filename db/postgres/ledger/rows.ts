import type { StoredRow } from '../../ledger/record/leaf.ts'
import { STORED } from './table.ts'

/** A row as the table holds it. */
export type LedgerRow = Pick<StoredRow, (typeof STORED)[number]>

/** The statement that adds rows, prepared once on each connection. */
export const insertOf = (rows: readonly LedgerRow[]) => ({
  name: 'audit_rows',
  text: INSERT,
  values: STORED.map((name) => rows.map((row) => row[name])),
})

const INSERT = `insert into audit_rows (${STORED.join(', ')}) select * from unnest(
  ${STORED.map((name, index) => `$${index + 1}::${name === 'seq' ? 'bigint' : 'text'}[]`).join(', ')})`
