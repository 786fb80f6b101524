import type { StoredRow } from '../../ledger/record/leaf.ts'
import { POSTGRES_STORED_COLUMNS } from './table.ts'

/** A row as the table holds it. */
export type PostgresLedgerRow = Pick<StoredRow, (typeof POSTGRES_STORED_COLUMNS)[number]>

export const insertRowsQuery = (rows: readonly PostgresLedgerRow[]) => ({
  name: 'audit_rows',
  text: INSERT,
  values: POSTGRES_STORED_COLUMNS.map((name) => rows.map((row) => row[name])),
})

const INSERT = `insert into audit_rows (${POSTGRES_STORED_COLUMNS.join(', ')}) select * from unnest(
  ${POSTGRES_STORED_COLUMNS.map((name, index) => `$${index + 1}::${name === 'seq' ? 'bigint' : 'text'}[]`).join(', ')})`
