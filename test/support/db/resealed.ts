import { createHash } from 'node:crypto'
import type { Json } from '../gateway.ts'

const BESIDE = ['row_hash', 'result', 'principal_name', 'subject_name']

/** RFC 8785 of what a row holds: integers, texts without lone surrogates, names in ASCII. */
export const canonical = (value: Json): string => JSON.stringify(value, sorted)

const sorted = (_: string, value: Json): Json =>
  value === null || typeof value !== 'object' || Array.isArray(value)
    ? value
    : Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)))

/** The leaf's object of a line of an export (docs/ledger.md#export). */
export const leafOf = (row: Json): Json =>
  Object.fromEntries(Object.entries(row).filter(([name]) => !BESIDE.includes(name)))

/**
 * Rows with fresh hashes, as the owner of a database could write them anew: each follows the one before it in its
 * stream, and `verify` finds nothing wrong with the chains.
 */
export function resealed(rows: readonly Json[]): readonly Json[] {
  const heads = new Map<string, { readonly seq: number; readonly hash: string }>()
  return rows.map((row) => {
    const { seq, hash } = heads.get(row.stream) ?? { seq: 0, hash: '0'.repeat(64) }
    const { row_hash, ...rest } = { ...row, seq: seq + 1, prev_hash: hash }
    const sealed = createHash('sha256')
      .update(canonical(leafOf(rest)))
      .digest('hex')
    heads.set(row.stream, { seq: seq + 1, hash: sealed })
    return { ...rest, row_hash: sealed, ...(row.action.startsWith('mcp_') && { result: row.status }) }
  })
}

/** An export of these rows. */
export const exportOf = (rows: readonly Json[]): string => rows.map((row) => `${canonical(row)}\n`).join('')
