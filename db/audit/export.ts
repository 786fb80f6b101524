import canonicalize from 'canonicalize'
import { exportLine, leafOf, type StoredRow } from './leaf.ts'
import type { Damaged } from './verify.ts'

/** What was read is no export of this ledger from its first line on. */
export class NotAnExport extends Error {}

/**
 * The rows of an NDJSON export, from its lines without their line feeds, null for one that is not UTF-8; each leaf is rebuilt from the columns.
 * A line must be byte for byte as the export writes it: a member added, repeated or respelt is a {@link Damaged}, and ends the rows.
 * Throws {@link NotAnExport} where there is no line, or the first one is not a row at all.
 */
export async function* exportedRows(
  lines: AsyncIterable<string | null>,
): AsyncGenerator<StoredRow | Damaged> {
  let count = 0
  for await (const line of lines) {
    count += 1
    const row = line === null ? null : rowOf(line)
    if (!row && count === 1) throw new NotAnExport('the first line is not a row of an audit export')
    if (!row) return yield { damaged: `should stand on line ${count}, which is not a row of an audit export` }
    if (exportLine(row) !== line)
      return yield { damaged: `stands on line ${count}, which is not as it was exported` }
    yield row
  }
  if (count === 0) throw new NotAnExport('there is nothing in it')
}

function rowOf(line: string): StoredRow | null {
  const fields = parsed(line)
  if (!fields) return null
  const detail = canonical(fields.detail)
  if (detail === null || typeof fields.stream !== 'string' || typeof fields.row_hash !== 'string') return null
  // What is not proven above shows in exportLine(row), which is compared with the line.
  const row = { ...fields, detail } as unknown as Omit<StoredRow, 'leaf'>
  return typeof row.action === 'string' ? { ...row, leaf: leafOf(row) } : null
}

function parsed(line: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(line)
    // Proven by the test beside it: an object, and what it holds stays unknown.
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null
  } catch (error) {
    if (error instanceof SyntaxError) return null
    throw error
  }
}

function canonical(detail: unknown): string | null {
  try {
    return canonicalize(detail) ?? null
  } catch (error) {
    // Half a surrogate pair, which has no canonical form.
    if (error instanceof Error) return null
    throw error
  }
}
