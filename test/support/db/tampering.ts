import type { StoredRow } from '../../../db/ledger/record/leaf.ts'

/**
 * One way of tampering with a whole, untampered log: gives the rows that are left, and the first seq that
 * must be named.
 */
export interface Tampering {
  readonly name: string
  readonly rows: readonly StoredRow[]
  readonly firstBad: number
}

const TEXTS = [
  'recorded_at',
  'request_id',
  'principal_id',
  'principal_type',
  'action',
  'status',
  'tool',
  'model',
] as const
const MORE_TEXTS = [
  'provider',
  'cert_thumbprint',
  'dpop_jkt',
  'config_digest',
  'version',
  'prev_hash',
  'row_hash',
  'leaf',
] as const

/** Every operator on row number `at` (from 1) of `rows`, which must have two rows before and after it. */
export function tamperings(rows: readonly StoredRow[], at: number): readonly Tampering[] {
  const index = at - 1
  const row = rows[index]
  const next = rows[index + 1]
  if (!row || !next) throw new Error(`there is no row ${at} with a row after it`)
  const replaced = (changed: StoredRow) => rows.with(index, changed)
  const columns = [...TEXTS, ...MORE_TEXTS].map((column) => ({
    name: `${column} of ${at} changed`,
    rows: replaced({ ...row, [column]: `${row[column] ?? ''}x` }),
    firstBad: at,
  }))
  return [
    ...columns,
    { name: `absent of ${at} made empty`, rows: replaced({ ...row, dpop_jkt: '' }), firstBad: at },
    { name: `detail of ${at} changed`, rows: replaced({ ...row, detail: '{"body_bytes":0}' }), firstBad: at },
    {
      name: `detail of ${at} respelt`,
      rows: replaced({ ...row, detail: row.detail.replace('{', '{ ') }),
      firstBad: at,
    },
    { name: `${at} deleted`, rows: rows.toSpliced(index, 1), firstBad: at },
    { name: `${at} to ${at + 1} deleted`, rows: rows.toSpliced(index, 2), firstBad: at },
    { name: `all before ${at + 1} deleted`, rows: rows.slice(at), firstBad: 1 },
    { name: `${at} there twice`, rows: rows.toSpliced(index, 0, row), firstBad: at },
    { name: `${at} there again later`, rows: [...rows, row], firstBad: at },
    { name: `${at} and ${at + 1} swapped`, rows: rows.with(index, next).with(index + 1, row), firstBad: at },
    {
      name: `${at} and ${at + 1} swapped, with their numbers`,
      rows: rows.with(index, { ...next, seq: row.seq }).with(index + 1, { ...row, seq: next.seq }),
      firstBad: at,
    },
    { name: `${at} numbered ${at}.5`, rows: replaced({ ...row, seq: at + 0.5 }), firstBad: at },
    { name: `${at} in another stream`, rows: replaced({ ...row, stream: 'other' }), firstBad: 1 },
  ]
}
