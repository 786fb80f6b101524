import { escapeHidden, escapeHiddenJson } from '../../proxy/visible.ts'

/**
 * Joins lines as a terminal may have them. Names, differences and errors in them come from strangers, and a
 * terminal obeys what it prints: so every character that hides or controls is written as `\u{1b}`.
 */
export const printableLines = (lines: readonly string[]): string =>
  lines.map((line) => `${escapeHidden(line)}\n`).join('')

/**
 * Writes JSON, indented, with everything that hides or controls escaped as JSON does: it reads back as the
 * same value.
 */
export const jsonLines = (value: unknown): readonly string[] =>
  JSON.stringify(value, null, 2).split('\n').map(escapeHiddenJson)

/** Writes rows as a table, each column as wide as its widest cell. */
export function alignColumns(rows: readonly (readonly string[])[]): readonly string[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)))
  return rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  )
}
